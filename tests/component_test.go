package tests

import (
	"os"
	"strings"
	"testing"
)

// componentServer answers each message, and ends with code 7 if the message is "end".
const componentServer = `import os, socket
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((os.environ["DDPBATCH_COMPONENT_HOST"], int(os.environ["DDPBATCH_COMPONENT_PORT"])))
s.listen(100)
print("serves on " + os.environ["SLURMD_NODENAME"], flush=True)
while True:
    c, _ = s.accept()
    message = c.recv(100).decode()
    if message == "end":
        os._exit(7)
    c.sendall(f"answer to {message} from {os.environ['SLURMD_NODENAME']}".encode())
    c.close()
`

// componentClient asks the server, makes it end, and asks again until it has restarted. Then it waits
// for a stop signal, and asks for the last time.
const componentClient = `import os, signal, socket, sys, time
host, port = sys.argv[1].rsplit(":", 1)
rank, node, here = os.environ["RANK"], os.environ["SLURMD_NODENAME"], os.environ["DDPBATCH_RUN_DIR"]
stopping = False
def stop(*_):
    global stopping
    stopping = True
signal.signal(signal.SIGUSR1, stop)
def ask(message):
    while True:
        try:
            c = socket.create_connection((host, int(port)))
            c.sendall(message.encode())
            answer = c.recv(100).decode()
        except OSError:
            answer = ""
        if answer or message == "end":
            return answer
        time.sleep(0.1)
def wait(done):
    while not done():
        time.sleep(0.1)
print(f"rank {rank} on {node}: {ask('first')}; notes at {os.environ['DDPBATCH_COMPONENT_NOTES_HOST'] == os.environ['DDPBATCH_ADDRESS']}, "
      f"{len(os.environ['DDPBATCH_COMPONENT_NOTES_ADDRESSES'].split(','))} in all", flush=True)
open(here + "/asked-" + rank, "w").close()
wait(lambda: all(os.path.exists(f"{here}/asked-{n}") for n in range(int(os.environ["WORLD_SIZE"]))))
if rank == "0":
    ask("end")
    print("rank 0: " + ask("second"), flush=True)
wait(lambda: stopping)
print(f"rank {rank}: " + ask("last"), flush=True)
sys.exit(3)
`

// componentJob is a job with a server on its second node.
const componentJob = `name = "served"
[slurm]
nodes = 2
tasks_per_node = 2
time = "00:10:00"
signal_before_end = "60s"
[[component]]
name = "server"
argv = ["python3", "server.py"]
node = 1
restart = 1
[[component]]
name = "notes"
argv = ["sh", "-c", "echo \"notes on $SLURMD_NODENAME, rank ${RANK-none}\"; exec sleep 1000"]
every_node = true
ready_pattern = "^notes on n[12]"
[command]
argv = ["python3", "client.py", "{component.server.address}"]
`

// runComponents checks components on two nodes: a server on the second node starts before the ranks,
// restarts without them, and stops after them. A component that does not become ready ends the job,
// and the error names it and its node.
func runComponents(t *testing.T, s site) {
	s.t = t
	s.write("server.py", componentServer)
	s.write("client.py", componentClient)
	s.write("served.toml", componentJob)
	id := s.testAndSubmit("served.toml")
	waitUntil(t, "the restart of the server", func() bool {
		b, _ := os.ReadFile(s.run("served") + "/slurm-" + id + ".out")
		return strings.Contains(string(b), "rank 0: answer to second")
	})
	waitUntil(t, "the status of the server", func() bool {
		o := s.ddpbatch("status", "runs/served").stdout
		return strings.Contains(o, "server: ready on n2 at 10.20.") && strings.Contains(o, ", 1 restart\n") && strings.Contains(o, "notes: ready on n1 at 10.20.")
	})
	if o := finish(t, s.Command(t.Context(), "scancel", "--batch", "--signal=USR1", id)); o.code != 0 {
		t.Fatal(o)
	}
	s.ends(id, "FAILED") // exit code 3
	log := s.log("served", id)
	mustContain(t, log, `component "server" on n2 is ready at `, `component "notes" on n1 is ready at `, `component "notes" on n2 is ready at `,
		"rank 0 on n1: answer to first from n2; notes at True, 2 in all", "rank 3 on n2: answer to first from n2; notes at True, 2 in all",
		`component "server" on n2 ended with exit code 7 while the program ran; starting it again (1 of 1)`,
		"rank 0: answer to second from n2", "rank 0: answer to last from n2", "rank 1: answer to last", "rank 2: answer to last", "rank 3: answer to last")
	if strings.Contains(log, "serves on") {
		t.Errorf("the log has the output of a component:\n%s", log)
	}
	if o := s.ddpbatch("wait", "runs/served"); o.code != 3 {
		t.Errorf("wait: %v", o)
	}
	if o := s.ddpbatch("logs", "served", "--component", "server"); o.stdout != "serves on n2\nserves on n2\n" {
		t.Errorf("logs of the server: %v", o)
	}
	if o := s.ddpbatch("logs", "served", "--component", "notes"); o.stdout != "[node 0] notes on n1, rank none\n[node 1] notes on n2, rank none\n" {
		t.Errorf("logs of the notes: %v", o)
	}

	s.write("never.toml", `name = "never"
[slurm]
nodes = 2
time = "00:10:00"
[[component]]
name = "server"
argv = ["sh", "-c", "echo loading; exec sleep 1000"]
node = 1
ready_timeout = "20s"
[command]
argv = ["echo", "the program runs"]
`)
	id = s.submit("never.toml")
	s.ends(id, "FAILED")
	log = s.log("never", id)
	mustContain(t, log, `rank 1 on n2: component "server" on n2 was not ready within 20s: it does not listen on `, "    loading", "{host} and {port}")
	if strings.Contains(log, "the program runs") {
		t.Errorf("the program has started:\n%s", log)
	}
}
