"""The Task tests: the Task and Future under test with each other, with asyncio's own, and subclasses of each."""

import asyncio
from asyncio import futures, tasks

from test.test_asyncio import test_tasks
from test.test_asyncio import utils as test_utils

from conformance import binding
from conformance.virtual_time import OnLoopUnderTest

REPLACES = {
    "CTask_CFuture_Tests",
    "CTask_CFuture_SubclassTests",
    "CTaskSubclass_PyFuture_Tests",
    "PyTask_CFutureSubclass_Tests",
    "CTask_PyFuture_Tests",
    "PyTask_CFuture_Tests",
    "PyTask_PyFuture_Tests",
    "PyTask_PyFuture_SubclassTests",
    "PyIntrospectionTests",
    "CIntrospectionTests",
    "PyCurrentLoopTests",
    "CCurrentLoopTests",
    "FutureGatherTests",
    "CoroutineGatherTests",
}

UNDER_TEST = binding.under_test()
# An interpreter without C accelerated classes has asyncio's Python ones.
CTask = getattr(tasks, "_CTask", tasks.Task)
CFuture = getattr(futures, "_CFuture", futures.Future)


class _PublicFunctions:
    """asyncio's public functions, in C or Python, find tasks under test."""

    all_tasks = staticmethod(asyncio.all_tasks)
    current_task = staticmethod(asyncio.current_task)


class _PythonFunctions:
    """asyncio's Python Task registers only with the Python functions."""

    all_tasks = staticmethod(getattr(tasks, "_py_all_tasks", tasks.all_tasks))
    current_task = staticmethod(getattr(tasks, "_py_current_task", tasks.current_task))


class Task_Future_Tests(_PublicFunctions, test_tasks.BaseTaskTests, test_tasks.SetMethodsTest, test_utils.TestCase):
    Task = UNDER_TEST.Task
    Future = UNDER_TEST.Future


class Task_Future_OnLoopUnderTest_Tests(OnLoopUnderTest, Task_Future_Tests):
    pass


class Task_AsyncioCFuture_Tests(_PublicFunctions, test_tasks.BaseTaskTests, test_utils.TestCase):
    Task = UNDER_TEST.Task
    Future = CFuture


class Task_AsyncioPyFuture_Tests(_PublicFunctions, test_tasks.BaseTaskTests, test_utils.TestCase):
    Task = UNDER_TEST.Task
    Future = futures._PyFuture


class AsyncioCTask_Future_Tests(_PublicFunctions, test_tasks.BaseTaskTests, test_utils.TestCase):
    Task = CTask
    Future = UNDER_TEST.Future


class AsyncioPyTask_Future_Tests(_PythonFunctions, test_tasks.BaseTaskTests, test_utils.TestCase):
    Task = tasks._PyTask
    Future = UNDER_TEST.Future


@test_tasks.add_subclass_tests
class SubTask_SubFuture_Tests(_PublicFunctions, test_tasks.BaseTaskTests, test_utils.TestCase):
    Task = UNDER_TEST.Task
    Future = UNDER_TEST.Future


@test_tasks.add_subclass_tests
class SubTask_SubFuture_OnLoopUnderTest_Tests(
    OnLoopUnderTest, _PublicFunctions, test_tasks.BaseTaskTests, test_utils.TestCase
):
    Task = UNDER_TEST.Task
    Future = UNDER_TEST.Future


@test_tasks.add_subclass_tests
class SubTask_AsyncioCSubFuture_Tests(_PublicFunctions, test_tasks.BaseTaskTests, test_utils.TestCase):
    Task = UNDER_TEST.Task
    Future = CFuture


@test_tasks.add_subclass_tests
class AsyncioCSubTask_SubFuture_Tests(_PublicFunctions, test_tasks.BaseTaskTests, test_utils.TestCase):
    Task = CTask
    Future = UNDER_TEST.Future


class IntrospectionTests(_PublicFunctions, test_utils.TestCase, test_tasks.BaseTaskIntrospectionTests):
    _register_task = staticmethod(tasks._register_task)
    _unregister_task = staticmethod(tasks._unregister_task)
    _enter_task = staticmethod(tasks._enter_task)
    _leave_task = staticmethod(tasks._leave_task)
    Task = UNDER_TEST.Task


class CurrentLoopTests(_PublicFunctions, test_tasks.BaseCurrentLoopTests, test_utils.TestCase):
    def new_task(self, coro):
        return UNDER_TEST.Task(coro, loop=self.loop)


class FutureGatherTests(OnLoopUnderTest, test_tasks.FutureGatherTests):
    pass


class CoroutineGatherTests(OnLoopUnderTest, test_tasks.CoroutineGatherTests):
    pass
