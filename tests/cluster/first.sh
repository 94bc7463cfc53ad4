# The first process of a machine of a test cluster (package cluster).
# $1 the cluster's directory, $2 the machine's name, $3 control or node.
#
# Standard input is the machine's power: a line on it boots the machine, its end (the test
# process is gone) ends this process and with it, by the kernel, every process of the machine.
set -eu
dir=$1 name=$2 role=$3

mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys               # shows this machine's links, not the outer ones
mount -t tmpfs -o mode=1777 shm /dev/shm
mount --bind "$dir/hosts" /etc/hosts
if [ -e /etc/resolv.conf ]; then        # no name server answers in here
	mount --bind "$dir/resolv.conf" /etc/resolv.conf
fi
if [ -d /etc/slurm ]; then
	mount --bind "$dir/slurm" /etc/slurm
fi
echo "$name" >/proc/sys/kernel/hostname

read -r _

# daemon runs a daemon and says so when it ends.
daemon() {
	code=0
	"$@" || code=$?
	echo "$1 ended with exit code $code" >"$dir/run/$name.ended"
}

case $role in
control)
	# User munge may not be able to pass through the cluster's directory.
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
	daemon slurmctld -D -f "$dir/slurm/slurm.conf" &
	;;
node)
	daemon slurmd -D -N "$name" -f "$dir/slurm/slurm.conf" &
	;;
esac

# Not in a child process such as cat, which a job could stop. While it reads, bash also waits
# for the orphans that the machine's processes leave to it.
while read -r _; do :; done
