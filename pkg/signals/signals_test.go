package signals_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nstance/nstance/pkg/leaktest"
	"github.com/nstance/nstance/pkg/signals"
)

// roleVariable makes the test binary behave as a service.
const roleVariable = "NSTANCE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		leaktest.Main(m.Run)
	case "stops":
		serve(signals.Stop)
	case "stops, but for hangup":
		serve(signals.StopButHangup)
	case "writes":
		signals.OutliveReaders()
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the reader of its output is gone
		_, err := fmt.Println("into a pipe that nothing reads")
		if errors.Is(err, syscall.EPIPE) {
			os.Exit(3)
		}
		os.Exit(4)
	}
}

// serve says that it is ready, and ends with 3 when it is stopped, or else with 5 when its input ends.
func serve(stop func(context.Context) (context.Context, context.CancelFunc)) {
	ctx, cancel := stop(context.Background())
	defer cancel()
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		if ctx.Err() == nil {
			os.Exit(5)
		}
	}()
	<-ctx.Done()
	os.Exit(3)
}

// service starts the test binary in a role, by a shell command if prefix is one, and waits until it
// is ready.
func service(t *testing.T, role, prefix string) (cmd *exec.Cmd, stdin io.Closer, stdout io.ReadCloser) {
	t.Helper()
	cmd = exec.Command("sh", "-c", prefix+`exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("it says %q, %v", line, err)
	}
	return cmd, in, out
}

// ended returns how a service ended.
func ended(cmd *exec.Cmd) string {
	_ = cmd.Wait()
	return strings.ToLower(cmd.ProcessState.String())
}

// TestStop: each of the signals ends a service in good order, unless it means something else, or was
// ignored when the service began.
func TestStop(t *testing.T) {
	for _, c := range []struct {
		role, prefix string
		signal       os.Signal
		want         string
	}{
		{"stops", "", syscall.SIGTERM, "exit status 3"},
		{"stops", "", os.Interrupt, "exit status 3"},
		{"stops", "", syscall.SIGHUP, "exit status 3"},
		{"stops, but for hangup", "", syscall.SIGHUP, "signal: hangup"},
		{"stops", "trap '' HUP; ", syscall.SIGHUP, "exit status 5"},
		{"stops", "trap '' INT; ", os.Interrupt, "exit status 5"},
		{"stops", "trap '' HUP INT TERM; ", syscall.SIGTERM, "exit status 3"},
	} {
		cmd, stdin, _ := service(t, c.role, c.prefix)
		if err := cmd.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		if c.want == "exit status 5" {
			if err := stdin.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if how := ended(cmd); how != c.want {
			t.Errorf("%q with %q, after %v: %s, want %s", c.role, c.prefix, c.signal, how, c.want)
		}
	}
}

// TestOutliveReaders: a service writes on after the reader of its output has ended.
func TestOutliveReaders(t *testing.T) {
	cmd, stdin, stdout := service(t, "writes", "")
	if err := errors.Join(stdout.Close(), stdin.Close()); err != nil {
		t.Fatal(err)
	}
	if how := ended(cmd); how != "exit status 3" {
		t.Errorf("it ended with %s", how)
	}
}
