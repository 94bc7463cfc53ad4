package symptoms

import (
	"slices"

	"github.com/ddpbatch/ddpbatch/internal/lazyregexp"
)

// newSymptom returns a row of the table.
func newSymptom(r severity, name, from, pattern, sample, cause, hint string) Symptom {
	return Symptom{Name: name, From: from, Cause: cause, Hint: hint, severity: r, expression: pattern, pattern: lazyregexp.New(pattern), sample: sample}
}

// in restricts the symptom to logs that also contain a line that matches the pattern context.
func (s Symptom) in(context string) Symptom {
	s.context = lazyregexp.New(context)
	s.expression = "(?:" + s.expression + ")|(?:" + context + ")"
	return s
}

// table lists the symptoms. If several of them match a line, the first one counts.
var table = slices.Concat(systemTexts, slurmTexts, xidTexts, cudaTexts, ncclTexts, glooTexts, torchTexts, mpiTexts, launcherTexts)

// systemTexts lists messages of the kernel, the C library, and file systems.
var systemTexts = []Symptom{
	newSymptom(cause, "out of memory", "Slurm or the kernel", `(?i)oom[-_ ]kill|oom_kill event|Out of memory: Killed process|Detected \d+ oom`,
		"slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.",
		"the job used more host memory than it requested, and the kernel killed a process",
		"raise slurm.mem, use fewer data-loader workers, or use smaller batches; `ddpbatch plan` estimates the memory of the built-in trainer"),
	newSymptom(cause, "bus error", "the kernel", `(?i)Bus error|SIGBUS|Unexpected bus error encountered in worker`,
		"ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
		"/dev/shm is full, or a memory-mapped file was truncated",
		"run `ddpbatch doctor` on the node to see the size of /dev/shm; enlarge it in a container (--ipc=host), remove files of dead jobs, or use fewer workers"),
	newSymptom(cause, "disk full", "the file system", `(?i)No space left on device|Disk quota exceeded|ENOSPC|EDQUOT`,
		"OSError: [Errno 28] No space left on device",
		"a file system is full or a quota is exceeded: the run directory's, /tmp, or /dev/shm",
		"run `df` and the site's quota command; remove old checkpoints, or set checkpoint.keep"),
	newSymptom(cause, "too many open files", "the C library", `(?i)Too many open files`,
		"OSError: [Errno 24] Too many open files",
		"the process reached the limit of open files: data loaders and connections to other ranks use many",
		"add `ulimit -n 65536` to setup.lines, or call torch.multiprocessing.set_sharing_strategy(\"file_system\")"),
	newSymptom(cause, "no more threads", "the C library", `(?i)pthread_create failed|Resource temporarily unavailable.*(thread|fork)|fork/exec .*: resource temporarily unavailable|failed to create new OS thread|runtime\.newosproc|Thread creation failed|can't start new thread|fork: retry|Errno 11\] Resource temporarily unavailable`,
		"OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource temporarily unavailable",
		"the process reached a limit of processes and threads: the user's (ulimit -u) or the cgroup's (pids.max)",
		"set OMP_NUM_THREADS and OPENBLAS_NUM_THREADS to slurm.cpus_per_task, and use fewer data-loader workers; raise `ulimit -u` in setup.lines, or ask the administrator for a higher pids.max"),
	newSymptom(cause, "program for another system", "the loader", `version .GLIBC(XX)?_[\d.]+' not found|Exec format error`,
		"python3: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by libfoo.so)",
		"a program or library was built for a newer system or a different architecture",
		"build it on a node of the same kind, or use the site's modules or a container"),
	newSymptom(likely, "illegal instruction", "the kernel", `(?i)Illegal instruction|SIGILL`,
		"Illegal instruction (core dumped)",
		"a program uses instructions that this CPU does not have",
		"build it on the oldest kind of node, or request nodes of one kind with slurm.constraint"),
	newSymptom(likely, "file system gone", "the file system", `(?i)Stale file handle|Transport endpoint is not connected|Input/output error`,
		"OSError: [Errno 116] Stale file handle: '/scratch/run/data.bin'",
		"the file system failed, or a different node replaced a file while it was read",
		"submit again to resume; if it happens again on one node, tell the administrator. "+avoidNode),
}

// slurmTexts lists messages of Slurm's commands and daemons.
var slurmTexts = []Symptom{
	newSymptom(cause, "time limit", "Slurm", `CANCELLED AT .* DUE TO TIME LIMIT|DUE TO TIME LIMIT`,
		"slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
		"the job reached its time limit",
		"submit again to resume, or raise slurm.time; with slurm.signal_before_end, the run can save before the limit, and with restart.requeue, it then resumes automatically"),
	newSymptom(cause, "preempted", "Slurm", `DUE TO PREEMPTION`,
		"slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
		"Slurm gave the nodes to a job of higher priority",
		"wait: Slurm requeues a preempted job, and it resumes from its last checkpoint. If `ddpbatch doctor` shows PreemptMode=CANCEL, submit it again"),
	newSymptom(cause, "node failed", "Slurm", `DUE TO NODE FAILURE|NODE_FAIL|Node failure on|DUE TO JOB NOT ENDING`,
		"slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
		"a node stopped answering: it crashed, rebooted, or lost its network",
		"submit again to resume; with restart.spare_nodes, a run continues automatically on a different node. "+avoidNode),
	newSymptom(cause, "more than there is", "Slurm", `Requested node configuration is not available|More processors requested than permitted|Unable to create step.*(not available|Invalid)`,
		"srun: error: Unable to create step for job 123: More processors requested than permitted",
		"the step requests more than the job has, or the job requests more than a node has",
		"compare tasks_per_node, cpus_per_task, and gpus_per_node with `scontrol show node`, and run `ddpbatch submit --test-only`"),
	newSymptom(cause, "wrong account or partition", "Slurm", `Invalid account or account/partition combination|invalid partition specified|Invalid qos specification`,
		"sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
		"Slurm does not accept this account, partition, or QOS for this user",
		"run `sacctmgr show assoc user=$USER` to list yours, and set slurm.account, slurm.partition, and slurm.qos"),
	newSymptom(cause, "log folder missing", "Slurm", `Could not open stdout file|could not open batch script output`,
		"slurmstepd: error: Could not open stdout file /home/ada/logs/out: No such file or directory",
		"the directory of the job's output does not exist, or the node cannot write to it",
		"create it on a shared file system before you submit"),
	newSymptom(cause, "work folder missing", "Slurm", `couldn't chdir to .*: going to /tmp instead`,
		"slurmstepd: error: couldn't chdir to `/home/ada/job': No such file or directory: going to /tmp instead",
		"the directory from which the job was submitted does not exist on the node",
		"submit from a directory on a shared file system"),
	newSymptom(cause, "program not found", "srun", `execve\(\): .*: (No such file or directory|Permission denied)|error: execve`,
		"slurmstepd: error: execve(): python3: No such file or directory",
		"the program does not exist on the node: its module is not loaded, or its directory is not mounted",
		"set setup.modules, setup.venv, or setup.conda; check with `srun which PROGRAM`"),
	newSymptom(cause, "module missing", "Lmod or Environment Modules", `The following module\(s\) are unknown|These module\(s\) .*cannot be loaded|Unable to locate a modulefile|module: (command )?not found`,
		"slurm_script: line 19: module: command not found",
		"the node does not have this module, or has no module system",
		"run `module avail` on such a node (`srun --pty bash`), and set setup.modules; if only some nodes have the module, set slurm.partition or slurm.constraint"),
	newSymptom(cause, "MPI of another kind", "srun or MPI", `Couldn't find the specified plugin name for mpi/|PMI2_Init failed|was not built with (SLURM|Slurm)('s)? PMI|OPAL ERROR: Unreachable in file .*pmix|not built with SLURM support`,
		"The application appears to have been direct launched using \"srun\", but OMPI was not built with SLURM's PMI support and therefore cannot execute.",
		"the program's MPI does not support srun's --mpi type",
		"run `srun --mpi=list`, and set slurm.mpi to \"pmix\" for Open MPI or \"pmi2\" for MPICH; or load the site's MPI module"),
	newSymptom(likely, "credential", "Slurm", `Munge decode failed|Job credential expired|Invalid job credential|Expired credential`,
		"slurmd: error: Munge decode failed: Expired credential",
		"a node's clock is wrong, or its munge key differs",
		"run `ddpbatch doctor --in-job` to compare the clocks, and tell the center which node it is"),
	newSymptom(likely, "controller silent", "Slurm", `Unable to contact slurm controller|Socket timed out on send/recv operation|Slurm controller not responding`,
		"squeue: error: slurm_receive_msgs: Socket timed out on send/recv operation",
		"the controller did not respond in time: it is busy or down",
		"wait, and query less often; check with `squeue --me` whether a submission succeeded"),
}

// cudaTexts lists messages of CUDA and the NVIDIA driver.
var cudaTexts = []Symptom{
	newSymptom(cause, "gpu out of memory", "CUDA", `(?i)CUDA out of memory|OutOfMemoryError: CUDA|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CUBLAS_STATUS_ALLOC_FAILED`,
		"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)",
		"the GPU's memory is too small for the model, its gradients, and a batch, or a different process uses it",
		"use a smaller batch with gradient accumulation, or bf16; with the built-in trainer also train.accumulate, zero2, or zero3; run `nvidia-smi` to see other processes"),
	newSymptom(cause, "no kernel for this gpu", "CUDA", `no kernel image is available for execution|CUDA_ERROR_NO_BINARY_FOR_GPU|invalid device function|is not compatible with the current PyTorch installation`,
		"RuntimeError: CUDA error: no kernel image is available for execution on the device",
		"the program was not built for this GPU's compute capability",
		"install a build of PyTorch for this GPU's capability and the driver's CUDA version (see `ddpbatch doctor`)"),
	newSymptom(cause, "driver too old", "CUDA", `CUDA driver version is insufficient|CUDA_ERROR_INSUFFICIENT_DRIVER|NVIDIA driver on your system is too old|provided PTX was compiled with an unsupported toolchain`,
		"RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
		"the driver is older than the CUDA that the program was built with",
		"use a build for the CUDA version of the driver (see `ddpbatch doctor`), or a node with a newer driver"),
	newSymptom(cause, "no gpu", "CUDA", `no CUDA-capable device is detected|CUDA_ERROR_NO_DEVICE|No CUDA GPUs are available|Torch not compiled with CUDA enabled`,
		"RuntimeError: No CUDA GPUs are available",
		"the job has no GPU, the variable CUDA_VISIBLE_DEVICES hides it, or the program was built without CUDA",
		"set slurm.gpus_per_node, and run `srun ddpbatch doctor` to see the GPUs of a rank"),
	newSymptom(cause, "wrong gpu number", "CUDA", `invalid device ordinal|CUDA_ERROR_INVALID_DEVICE`,
		"RuntimeError: CUDA error: invalid device ordinal",
		"a rank uses its local rank as the GPU index, but Slurm shows each task only its own GPU, as index 0",
		"use --gpu-bind=none in your own scripts, or device 0 if a rank sees one GPU"),
	newSymptom(likely, "bad memory access on the gpu", "CUDA", `illegal memory access|CUDA_ERROR_ILLEGAL_ADDRESS|device-side assert triggered|misaligned address`,
		"RuntimeError: CUDA error: device-side assert triggered",
		"a kernel accessed invalid memory: often because a label or token ID is out of range",
		"run once with CUDA_LAUNCH_BLOCKING=1 to find the call, and check labels against the number of classes"),
}

// launcherTexts lists the final messages of programs that start other programs.
var launcherTexts = []Symptom{
	newSymptom(aftermath, "srun ended the step", "srun", `srun: error: .*(Exited with exit code|Killed|Terminated|Segmentation fault|Aborted)|STEP .* CANCELLED AT|Job step aborted: Waiting up to`,
		"srun: error: n1: task 3: Exited with exit code 1",
		"a task failed, or Slurm stopped the step because a task failed",
		"check the output of that task above this line"),
	newSymptom(aftermath, "cancelled", "Slurm", `\*\*\* JOB \d+ .*CANCELLED AT|force-terminat`,
		"slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 ***",
		"a user or a monitoring program canceled the job",
		"run `sacct -j JOB -o State%40` to see which user canceled it"),
	newSymptom(likely, "python module missing", "Python", `ModuleNotFoundError: No module named|ImportError: .*cannot open shared object file`,
		"ModuleNotFoundError: No module named 'torch'",
		"the Python environment on the node does not have this module",
		"set setup.venv, setup.conda, or setup.modules; compare `srun which python3` with the login node's"),
	newSymptom(likely, "command not found", "the shell or ddpbatch", `: command not found|: not found\s*$|: (it is not|not found) in PATH`,
		"slurm_script: line 7: nvcc: command not found",
		"a program is not in the node's PATH: its module or environment is not loaded, or it is not installed on the node",
		"set setup.modules, setup.venv, or setup.conda; check with `srun which PROGRAM`"),
	newSymptom(likely, "error in a Python program", "Python", `(^|\]:? ?)(ZeroDivision|Type|Attribute|Name|UnboundLocal|Key|Index|FileNotFound|Assertion|Syntax|Indentation|Unicode\w*)Error(:|\s*$)`,
		"TypeError: forward() missing 1 required positional argument: 'x'",
		"the program raised an exception",
		"check the traceback above this line; for a missing file, check that each node sees it at this path"),
	newSymptom(likely, "segmentation fault", "the kernel", `(?i)Segmentation fault|SIGSEGV|exited on signal 11`,
		"[n1:1234] *** Process received signal *** Signal: Segmentation fault (11)",
		"a native library crashed",
		"check the stack below this line for the library; mismatched versions of CUDA, NCCL, and MPI are a common cause (see `ddpbatch doctor --in-job`)"),
	newSymptom(likely, "not finite", "the training", `(?i)loss (is|was|became) (nan|inf)|contains (nan|inf)|non-?finite (loss|gradient)|the loss is not finite`,
		"ValueError: loss is nan at step 812",
		"training diverged, or a sample is corrupt",
		"lower the learning rate, or set a warm-up or clip_norm; set train.nonfinite = \"skip\" to skip single steps"),
	newSymptom(likely, "program hangs", "ddpbatch", `ddpbatch: (error: )?the program hangs: `,
		"ddpbatch: error: the program hangs: no output for 30m; rank 3 on n07 is in read (train.py:57)",
		"the program reached a limit of command.watch: often one rank waits for data or a lock, and the others wait for this rank",
		"compare the stacks of the ranks in evidence/ in the run directory; if the program only paused, raise the limit or set command.watch.pause_patterns"),
	newSymptom(likely, "rank lost", "ddpbatch", `ddpbatch: (error: )?rank \d+ on .*(was lost|has been silent for)`,
		"ddpbatch: error: rank 2 on n3 was lost at step 26958 (training): its process was killed or crashed",
		"this rank failed first: its process was killed or crashed, or its node or link is down",
		"run `sinfo -R` and `scontrol show node NODE` to check the node, and see failure.json for the signal; with [restart], the run restarts automatically, and with spare_nodes on a different node"),
}
