package output

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envPrinter makes the test binary print for a benchmark: the size of a write, in bytes.
const envPrinter = "DDPBATCH_TEST_PRINTER"

// gigabytePerMinute is the rate of the benchmark, in bytes per second.
const gigabytePerMinute = 1_000_000_000 / 60

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(envPrinter); ok {
		size, err := strconv.Atoi(text)
		if err != nil {
			panic(err)
		}
		printLines(size)
		return
	}
	os.Exit(m.Run())
}

// printLines prints lines of 100 bytes, 1 GB per minute, until standard output is closed. Each write
// has the given size.
func printLines(size int) {
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	block := bytes.Repeat(line, size/len(line))
	began, printed := time.Now(), 0
	for {
		for range max(1, 20_000/len(block)) {
			if _, err := os.Stdout.Write(block); err != nil {
				return
			}
			printed += len(block)
		}
		time.Sleep(time.Until(began.Add(time.Duration(float64(printed) / gigabytePerMinute * 1e9))))
	}
}

// BenchmarkCapture measures the CPU time of a capture of a program that prints 1 GB per minute, in
// lines of 100 bytes. It reports the share of one core. One operation is a second of output. The
// program prints line by line, or in blocks of 8,000 bytes.
func BenchmarkCapture(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // as in `ddpbatch run` with [command]
	for _, size := range []int{100, 8000} {
		for _, mode := range []Mode{Merged, Labeled, PerRank} {
			b.Run(fmt.Sprintf("%s/%dB", mode, size), func(b *testing.B) {
				sink, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
				if err != nil {
					b.Fatal(err)
				}
				defer sink.Close()
				r, w, err := os.Pipe()
				if err != nil {
					b.Fatal(err)
				}
				// Another process reads the forwarded output, as slurmstepd does.
				reader := exec.Command("cat")
				reader.Stdin, reader.Stdout = r, sink
				if err := reader.Start(); err != nil {
					b.Fatal(err)
				}
				r.Close()
				c, err := StartCapture(Options{Mode: mode, Rank: 1, Dir: testDir(b.TempDir()), Stdout: w, Stderr: w, Warn: func(m string) { b.Error(m) }})
				if err != nil {
					b.Fatal(err)
				}
				printer := exec.Command(os.Args[0])
				printer.Env = append(os.Environ(), envPrinter+"="+strconv.Itoa(size))
				printer.Stdout, printer.Stderr = c.Stdout, io.Discard
				if err := printer.Start(); err != nil {
					b.Fatal(err)
				}
				b.SetBytes(gigabytePerMinute)
				before, began := cpuTime(b), time.Now()
				for b.Loop() {
					time.Sleep(time.Second)
				}
				used, wall := cpuTime(b)-before, time.Since(began)
				b.ReportMetric(100*used.Seconds()/wall.Seconds(), "%core")
				_ = printer.Process.Kill()
				_ = printer.Wait()
				c.Close(b.Context())
				w.Close()
				_ = reader.Wait()
			})
		}
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
