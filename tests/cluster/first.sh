# This script is the init process of a machine of a test cluster (package cluster).
# $1 the cluster's directory, $2 the machine's name, $3 control or node.
#
# Standard input controls the machine: a line boots it. At the end of input (the test process has
# exited) this process exits, and the kernel kills every other process of the machine.
set -eu
dir=$1 name=$2 role=$3

mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys               # shows this machine's links, not the outer ones
mount -t tmpfs -o mode=1777 shm /dev/shm
mount --bind "$dir/hosts" /etc/hosts
if [ -e /etc/resolv.conf ]; then        # no name server is reachable here
	mount --bind "$dir/resolv.conf" /etc/resolv.conf
fi
if [ -e "$dir/passwd" ]; then           # the cluster has its own users
	mount --bind "$dir/passwd" /etc/passwd
	mount --bind "$dir/group" /etc/group
fi
if [ -d /etc/slurm ]; then
	mount --bind "$dir/slurm" /etc/slurm
fi
echo "$name" >/proc/sys/kernel/hostname

read -r _

# daemon runs a daemon and records when it exits.
daemon() {
	code=0
	"$@" || code=$?
	echo "$1 ended with exit code $code" >"$dir/run/$name.ended"
}

# accounting starts MariaDB and slurmdbd and adds the cluster and its account. The database is
# temporary, so it does not sync to disk. It needs no password, because only this machine has its
# socket.
accounting() {
	mkdir /run/database /run/mysqld
	mount --bind "$dir/database" /run/database
	chown mysql /run/database /run/mysqld
	set -- --user=mysql --datadir=/run/database --tmpdir=/run/database \
		--innodb-flush-method=nosync --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 \
		--innodb-log-file-size=8M --innodb-buffer-pool-size=32M
	# If slurmdbd 24.11.5 with MariaDB 11.8 has to create its database, its first query fails: error
	# 5027, at most 0 columns are allowed. It works if the database exists.
	echo 'CREATE DATABASE slurm;' >/run/database/init.sql
	mariadb-install-db --no-defaults --skip-test-db --skip-name-resolve --auth-root-authentication-method=normal "$@" >/dev/null
	daemon mariadbd --no-defaults --skip-networking --skip-log-bin --performance-schema=0 --socket=/run/mysqld/mysqld.sock \
		--init-file=/run/database/init.sql "$@" &
	until [ -S /run/mysqld/mysqld.sock ]; do
		kill -0 $!
		sleep 0.02
	done
	export SLURM_CONF=$dir/slurm/slurm.conf
	daemon slurmdbd -D &
	until (: >/dev/tcp/ctl/6819) 2>/dev/null; do
		kill -0 $!
		sleep 0.02
	done
	cluster=$(sed -n 's/^ClusterName=//p' "$SLURM_CONF")
	sacctmgr --immediate --quiet add cluster "$cluster"
	sacctmgr --immediate --quiet add account research
	sacctmgr --immediate --quiet add user root account=research
	sacctmgr --immediate --quiet modify user root set defaultaccount=research >/dev/null
}

# controller runs slurmctld and restarts it if the file "again" exists when slurmctld exits. The
# file contains the delay in seconds. If it is empty, the restart is immediate and without
# slurmctld's state. The file is removed before the restart, and Reconfigure and RestartController
# wait for that.
controller() {
	daemon slurmctld -D -f "$dir/slurm/slurm.conf"
	while [ -e "$dir/run/again" ]; do
		down=$(cat "$dir/run/again")
		if [ -n "$down" ]; then
			sleep "$down"
		else
			rm -rf "$dir/state"
			mkdir "$dir/state"
		fi
		rm -f "$dir/run/ctl.ended" "$dir/run/again"
		daemon slurmctld -D -f "$dir/slurm/slurm.conf"
	done
}

case $role in
control)
	# The user munge may not have access to the cluster's directory.
	mount -t tmpfs -o mode=755 run /run
	mkdir /run/munge
	mount --bind "$dir/munge" /run/munge
	setpriv --reuid=munge --regid=munge --clear-groups munged --foreground \
		--key-file=/run/munge/key --socket=/run/munge/socket \
		--pid-file=/run/munge/pid --seed-file=/run/munge/seed --num-threads=4 &
	until [ -S "$dir/munge/socket" ]; do
		kill -0 $!
		sleep 0.02
	done
	if [ -e "$dir/slurm/slurmdbd.conf" ]; then
		accounting
	fi
	controller &
	;;
node)
	daemon slurmd -D -N "$name" -f "$dir/slurm/slurm.conf" &
	;;
esac

# Read in bash, because a job could stop a child process such as cat. While bash reads, it also
# reaps the orphans of the machine.
while read -r _; do :; done
