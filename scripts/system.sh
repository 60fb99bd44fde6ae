#!/bin/sh
# Installs programs that rtfilter's make targets need beside Python: system.sh venv java prometheus postgresql nats chromium
# Only where that is allowed, as root with apt-get, and said before it is done. SYSTEM=no forbids it.
PYTHON=${PYTHON:-python3}
updated=no

# have NAME: whether a program is here
have() {
    case $1 in
    venv) "$PYTHON" -c 'import ensurepip, venv' 2> /dev/null ;;
    java) command -v java > /dev/null || test -n "$JAVA_HOME" ;;
    prometheus) command -v prometheus > /dev/null && command -v promtool > /dev/null ;;
    postgresql) command -v postgres > /dev/null || ls /usr/lib/postgresql/*/bin/postgres > /dev/null 2>&1 ;;
    nats) command -v nats-server > /dev/null || test -x /usr/sbin/nats-server ;;
    chromium) command -v chromium > /dev/null ;;
    esac
}

# install NAME PACKAGE WHAT: what is missing without it
install() {
    have "$1" && return
    if [ "$SYSTEM" = no ] || [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
        echo "no $1: $3; on Debian, apt-get install $2"
        return
    fi
    if [ $updated = no ]; then
        echo "updating package lists (apt-get update); make SYSTEM=no forbids it"
        apt-get update -qq || echo "package lists could not be updated"
        updated=yes
    fi
    echo "installing $2 (apt-get install)"
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" > /dev/null
    have "$1" || echo "no $1: $3; apt-get could not install $2"
}

for name in "$@"; do
    case $name in
    venv) install venv python3-venv "the environment cannot be made" ;;
    java) install java default-jre-headless "tests of Spark are skipped" ;;
    prometheus) install prometheus prometheus "tests of the dashboard are skipped" ;;
    postgresql) install postgresql postgresql "tests with its databases are skipped" ;;
    nats) install nats nats-server "tests of the stage on NATS are skipped" ;;
    chromium) install chromium chromium "tests of the server's page are skipped" ;;
    *) echo "system.sh: unknown program $name" && exit 2 ;;
    esac
done
