"""Logging: structured, to standard error, with the request id where there is one.

Nothing here or anywhere else logs token ids, payload bytes or local variables.
"""

from __future__ import annotations

import logging
import sys

import structlog

from app.settings import Settings


def configure(settings: Settings) -> None:
    """Route our own and the libraries' logs into one stream."""
    level = getattr(logging, settings.log_level.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if settings.log_json
        # The default formatter shows local variables wherever `rich` happens to be installed.
        else [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            )
        ]
    )
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # The process's own, not one that somebody has put in its place for a while.
        logger_factory=structlog.WriteLoggerFactory(file=sys.__stderr__),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.access").disabled = True
    # Alembic and SQLAlchemy say more than an operator wants to read at a start.
    logging.getLogger("alembic").setLevel(max(level, logging.WARNING))
