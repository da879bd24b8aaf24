"""``foltr operator desk``: answer devices that enrol themselves with a one-time token."""

import asyncio
import signal
from typing import Any

import structlog

from foltr.cli.operator.access import OperatorFolder
from foltr.cli.output import configure_logging
from foltr.cli.settings import load_settings, takes_settings
from foltr.core.alive_file import AliveFile
from foltr.core.file_locks import lock_store
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.operations.operator_access import broker_record, open_authority, redirect, tell_broker

log = structlog.get_logger(__name__)

RUN_KEYS = ("broker_url", "give_up_after_s", "alive_file")


@takes_settings(RUN_KEYS)
def desk(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, **flags: Any) -> None:
    """Enrol who asks with a one-time token, until SIGTERM or Ctrl-C.

    It connects to the broker and listens nowhere, but it uses the enrolment key: run it on the operator's machine, and
    only as long as devices are to enrol themselves.
    """
    from foltr.broker.address import BrokerAddress
    from foltr.operations.enrolment_desk import DeskService

    settings = load_settings(**flags)
    configure_logging(settings.log_level, settings.log_format)
    with open_authority(operator) as authority:
        federation, keys = authority.federation, authority.operator.operator_keys
        access = authority.operator.broker
    if broker_record(operator) is not None:
        from foltr.broker.users import provision_service

        access = provision_service(operator, "desk")
        tell_broker(operator)
    url = settings.broker_url if "broker_url" in settings.model_fields_set else None
    address = BrokerAddress.of(redirect(access, url))
    # For as long as this process lives.
    lock_store(operator / "desk", "desk", "Two desks of one folder would throw each other out at the broker.")
    service = DeskService(
        operator,
        federation,
        keys,
        address,
        give_up_after_s=settings.give_up_after_s,
        alive_file=AliveFile(settings.alive_file),
    )
    asyncio.run(_serve(service))


async def _serve(service: Any) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    await service.run()
    log.info("desk_stopped")
