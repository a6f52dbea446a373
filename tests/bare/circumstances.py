"""What a newcomer's machine may lack: a network, a disk with room, a home that can be written. As steps of the check.

Each command must end with the given exit code and one message that holds the given words, without a traceback. They
run after README's own steps, with the gateway that pip installed.
"""

from typing import Final

from tests.bare.readme import CLONE, Step

_REFUSED: Final = r"""
refused() {
  local code=$1 words=$2 got=0
  shift 2
  "$@" >printed 2>&1 || got=$?
  tail -n 3 printed
  [ "$got" = "$code" ] || { echo "exit code $got, not $code: $*"; exit 1; }
  tail -n 3 printed | grep -qF "$words" || { echo "the message lacks: $words"; exit 1; }
  ! grep -q Traceback printed || { cat printed; exit 1; }
}
mkdir -p ~/sealed && chmod 500 ~/sealed
gateway=~/clone/.tools/install/venv/bin/codec-gateway
"""
CIRCUMSTANCES: Final = (
    Step(
        "no network",
        f"""{CLONE}{_REFUSED}
refused 3 "the model can't be fetched" env XDG_CACHE_HOME=$HOME/empty $gateway model
refused 3 "the model can't be fetched" env XDG_CACHE_HOME=$HOME/empty $gateway demo
git clone --quiet . ~/again 2>&-
refused 2 "the packages can't be fetched" make --directory ~/again setup
refused 2 "the packages can't be fetched" make --directory ~/again demo
""",
        network=False,
    ),
    Step(
        "sealed home, full disk",
        f"""{CLONE}{_REFUSED}
export HOME=~/sealed
refused 3 "set XDG_CACHE_HOME" $gateway model
refused 3 "set XDG_CACHE_HOME" $gateway serve --engine embedded
refused 0 "" $gateway check --config servers.json
refused 3 "No space left on device" env XDG_CACHE_HOME=/mnt $gateway model
refused 1 "No space left on device" bash -c "$gateway check --config servers.json >/dev/full"
""",
    ),
)
"""`/mnt` is a disk of one megabyte."""
