"""By which address the executors of a Spark application reach its driver. Used by `driving`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from horovod.runner.machines import addresses
from horovod.runner.machines.this_host import is_local


def is_loopback(address: str) -> bool:
    """Only this machine reaches it."""
    return ip_address(address).is_loopback


def addresses_of_driver(caller: str, conf: Mapping[str, str], executors: Iterable[str]) -> tuple[str, str]:
    """The address by which executors reach this machine, and the one to listen at: Spark's own.

    Args:
        caller: for messages.
        conf: of the application.
        executors: the hosts of those that run, as far as they are known.

    Raises:
        RuntimeError: there is none.
    """
    host = conf.get("spark.driver.host", "localhost").strip("[]")
    seen_at = addresses.of_name(host)
    bound = addresses.of_name(conf.get("spark.driver.bindAddress", "").strip("[]"))
    if seen_at and bound and ip_address(bound).is_unspecified:
        bound = addresses.towards(seen_at)  # at one address, also where Spark listens at all
    if seen_at and is_loopback(seen_at) and (others := sorted({name for name in executors if not is_local(name)})):
        raise RuntimeError(
            f"{caller}: the executors on {', '.join(others[:8])} are to reach the driver at {host} "
            f"(spark.driver.host), which is {seen_at} here, where only this machine reaches it. Set spark.driver.host "
            "to an address of this machine that they reach."
        )
    for address in (seen_at, bound):
        if seen_at and address and not ip_address(address).is_unspecified and addresses.is_own(address):
            return seen_at, address
    raise RuntimeError(
        f"{caller}: the executors are to reach the driver at {host} (spark.driver.host), which is "
        f"{seen_at or 'no known host'} and no address of this machine. Set spark.driver.host to one, or "
        "spark.driver.bindAddress where the address is translated on the way."
    )
