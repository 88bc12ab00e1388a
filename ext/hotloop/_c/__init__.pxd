# Marks hotloop._c as a package for Cython's cimport; the declarations are in the .pxd beside each .pyx.
