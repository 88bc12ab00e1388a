"""A Tornado application that also makes requests to itself, and has a child."""

import json

from facts import facts
from tornado.httpclient import AsyncHTTPClient
from tornado.process import Subprocess
from tornado.web import Application, RequestHandler


class Facts(RequestHandler):
    async def get(self):
        if not self.get_argument("inner", ""):
            response = await AsyncHTTPClient().fetch(f"http://{self.request.host}/facts?inner=1")
            assert json.loads(response.body)["pid"]
        self.write(facts())


class Echo(RequestHandler):
    async def post(self):
        self.write(self.request.body)
        await self.flush()


class Child(RequestHandler):
    async def get(self):
        child = Subprocess(["cat"], stdin=Subprocess.STREAM, stdout=Subprocess.STREAM)
        await child.stdin.write(b"through a child")
        child.stdin.close()
        self.write(await child.stdout.read_until_close())
        assert await child.wait_for_exit() == 0


app = Application([("/facts", Facts), ("/echo", Echo), ("/child", Child)])
