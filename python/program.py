"""Programs that tests start, and end."""

import asyncio
import os
import re
import tempfile
from pathlib import Path

import pytest

from checks import true

# Of a log this much is shown, its end.
SHOWN_CHARACTERS = 6000


@pytest.fixture(scope="module")
async def programs(request):
    """Programs that are ended after the tests; their output is shown if one has failed."""
    started = []
    yield started
    if request.session.testsfailed:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            for program in started:
                print(f"\n{program.log()[-SHOWN_CHARACTERS:]}")
    for program in started:
        await program.stop()


class Program:
    """A program that says where it is."""

    @classmethod
    async def start(cls, command, ready, programs, **environment):
        program = cls()
        program.output = tempfile.NamedTemporaryFile()
        program.process = await asyncio.create_subprocess_exec(
            *command, stdout=program.output, stderr=program.output, env={**os.environ, **environment}
        )
        programs.append(program)
        while not (found := re.search(ready, program.log())):
            true(program.process.returncode is None, program.log())
            await asyncio.sleep(0.05)
        program.url = found[1]
        return program

    def log(self):
        return Path(self.output.name).read_text(errors="replace")

    async def stop(self):
        self.process.kill()
        await self.process.wait()
