"""An executor without threads."""

import concurrent.futures


class InlineExecutor(concurrent.futures.ThreadPoolExecutor):
    """Runs in submit(), so that what is read is there in a certain turn."""

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future
