"""The marker by which a test run can choose or leave out CPython's own suites: `pytest -m "not conformance"`."""


def pytest_configure(config):
    config.addinivalue_line("markers", "conformance: CPython's own asyncio and selector tests, on hotloop")
