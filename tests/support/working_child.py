"""A child process that does what it is sent, such as taking CPU time; its end states the time of its whole life."""

import resource
import subprocess
import sys

WORKING = """
import sys
open("/proc/self/comm", "w").write(sys.argv[1])
print(flush=True)
for line in sys.stdin:
    exec(line)
    print(flush=True)
"""
"""A process of this name that executes each line of its input, and answers each."""


class Child:
    """`does` returns once the child has done it, with the first line that it printed."""

    def __init__(self, name: str = "a) (b 1 2") -> None:
        words = [sys.executable, "-c", WORKING, name]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None and self.process.stdout is not None
        self._to, self._from = self.process.stdin, self.process.stdout
        self._from.readline()

    @property
    def number(self) -> int:
        return self.process.pid

    def does(self, code: str) -> str:
        """Have it execute a line of code, which may print one line."""
        self._to.write(code + "\n")
        self._to.flush()
        answer = self._from.readline()
        return answer if answer == "\n" else answer + self._from.readline()

    def ends(self) -> float:
        """Return the CPU time of its whole life, with that of children that it waited for, in seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.process.communicate()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def working(s: float) -> str:
    return f"import time; end = time.process_time() + {s}; all(time.process_time() < end for _ in iter(int, 1))"


def in_child(code: str) -> str:
    """Code that has a new child execute this code, and waits for its end."""
    return f"import os; pid = os.fork(); pid or (exec({code!r}), os._exit(0)); os.waitpid(pid, 0)"


LISTEN = "import socket; listener = socket.create_server(('127.0.0.1', 0)); print(listener.getsockname()[1])"

FORK = "import os; r, w = os.pipe(); pid = os.fork(); pid or (os.close(w), os.read(r, 1), os._exit(0)); print(pid)"
"""Code that prints the number of a new child, which waits until it may end."""
