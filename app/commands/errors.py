"""Why a command ends without having done what was asked, and its exit code. A leaf.

CommandError
├── WrongUse      2    the command line cannot be meant so
├── Failed        1    it could not be done
├── Unreachable   4    no Statehold server answers there, or not in time
├── Refused       1, 5 the server said no; 5 if that is about who asks
└── Left        130    somebody stopped waiting (Ctrl-C); what they waited for goes on

What a stopped data folder refuses is `storage.errors.StoreUnusable` (3), and what settings cannot be is
`app.settings_file.UnusableSettings` (2).
"""

from __future__ import annotations


class CommandError(Exception):
    """Base of the family; the message is one sentence."""

    exit_code = 1


class WrongUse(CommandError):
    """The command line cannot be meant so."""

    exit_code = 2


class Failed(CommandError):
    """It could not be done."""


class Unreachable(CommandError):
    """No Statehold server answers there, or not in time."""

    exit_code = 4


class Refused(CommandError):
    """The server said no.

    Attributes:
        code: the stable code of the problem, or "http_<status>" where the answer had none.
    """

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.status = status
        self.code = code
        self.exit_code = 5 if status in (401, 403) else 1


class Left(CommandError):
    """Somebody stopped waiting for what goes on."""

    exit_code = 130  # as a shell says it of who was stopped by Ctrl-C
