package dir_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/leaktest"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/object/dir"
)

// The variables that turn a run of this test binary into another process that uses
// the store.
const (
	childRole = "DIR_TEST_ROLE"
	childRoot = "DIR_TEST_ROOT"
)

func TestMain(m *testing.M) {
	role := os.Getenv(childRole)
	if role == "" {
		leaktest.Main(m.Run)
	}
	s, err := dir.New(dir.Config{Root: os.Getenv(childRoot)})
	if err == nil {
		err = act(context.Background(), s, role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func act(ctx context.Context, s *dir.Store, role string) error {
	switch verb, n, _ := strings.Cut(role, " "); verb {
	case "increment":
		times, err := strconv.Atoi(n)
		for i := 0; err == nil && i < times; i++ {
			err = increment(ctx, s, "counter", os.Getpid())
		}
		return err
	case "churn":
		for i := 0; ; i++ {
			if err := churn(ctx, s, fmt.Sprintf("%d.%d", os.Getpid(), i)); err != nil {
				return err
			}
		}
	case "overfill":
		return overfill(ctx, s)
	}
	return fmt.Errorf("no such role %q", role)
}

// increment prints each number whose write succeeded.
func increment(ctx context.Context, s object.Store, key string, who int) error {
	for {
		o, err := s.Get(ctx, key)
		if err != nil {
			return err
		}
		digits, _, _ := strings.Cut(string(o.Body), " ")
		n, err := strconv.Atoi(digits)
		if err != nil {
			return fmt.Errorf("torn counter %q", o.Body)
		}
		_, err = object.PutConfirmed(ctx, s, key, fmt.Appendf(nil, "%d %d", n+1, who), object.IfMatch(o.ETag))
		if err == nil {
			_, err = fmt.Println(n + 1)
			return err
		}
		if !errors.Is(err, object.ErrConflict) {
			return err
		}
	}
}

// churn takes a lock by if-absent, checks that it is the only holder, and deletes it.
func churn(ctx context.Context, s object.Store, who string) error {
	_, err := s.Put(ctx, "lock", []byte(who), object.IfAbsent())
	if errors.Is(err, object.ErrConflict) {
		return nil
	}
	if err != nil {
		return err
	}
	o, err := s.Get(ctx, "lock")
	if err != nil || string(o.Body) != who {
		return fmt.Errorf("holder %s finds %q, %w", who, o.Body, err)
	}
	fmt.Println(who)
	return s.Delete(ctx, "lock")
}

func child(t *testing.T, root, role string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), childRole+"="+role, childRoot+"="+root)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, &out
}

func put(t *testing.T, s object.Store, key, body string, pre object.Precondition) object.ETag {
	t.Helper()
	etag, err := s.Put(t.Context(), key, []byte(body), pre)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return etag
}

// TestProcessesRace: processes lose no update to each other.
func TestProcessesRace(t *testing.T) {
	const processes, each = 4, 40
	root := t.TempDir()
	s := open(t, root)
	put(t, s, "counter", "0 -", object.IfAbsent())
	var children []*exec.Cmd
	var outs []*bytes.Buffer
	for range processes {
		c, out := child(t, root, "increment "+strconv.Itoa(each))
		children, outs = append(children, c), append(outs, out)
	}
	for i, c := range children {
		if err := c.Wait(); err != nil {
			t.Fatalf("%v: %s", err, outs[i])
		}
	}
	o, err := s.Get(t.Context(), "counter")
	if err != nil || !strings.HasPrefix(string(o.Body), strconv.Itoa(processes*each)+" ") {
		t.Errorf("counter is %q, %v, want %d", o.Body, err, processes*each)
	}
}

// TestKill kills writers at any point, many times: all acknowledged writes exist, none is
// torn, and the next process can continue.
func TestKill(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	put(t, s, "counter", "0 -", object.IfAbsent())
	for round := range 12 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), childRole+"=increment 1000000", childRoot+"="+root)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		told := killAfter(t, c, out, 3+round)
		o, err := s.Get(t.Context(), "counter")
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		digits, _, _ := strings.Cut(string(o.Body), " ")
		if n, err := strconv.Atoi(digits); err != nil || n < told || n > told+1 {
			t.Fatalf("round %d: counter is %q after the writer was told %d", round, o.Body, told)
		}
		if err := increment(t.Context(), s, "counter", os.Getpid()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// killAfter kills a process once it has printed n numbers, and returns the last one.
func killAfter(t *testing.T, c *exec.Cmd, out io.Reader, n int) int {
	t.Helper()
	last := 0
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		var err error
		if last, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatal(err)
		}
		if i == n {
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Wait(); err == nil {
		t.Fatal("the writer ended by itself")
	}
	if last == 0 {
		t.Fatal("the writer wrote nothing")
	}
	return last
}

// TestKillWhileChurning kills processes that create and delete one key: no two hold it at a
// time, and it can be created again.
func TestKillWhileChurning(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	for round := range 5 {
		var wg sync.WaitGroup
		for range 3 {
			c, out := child(t, root, "churn")
			wg.Go(func() {
				time.Sleep(time.Duration(60+10*round) * time.Millisecond)
				_ = c.Process.Kill()
				_ = c.Wait()
				if strings.Contains(out.String(), "finds") {
					t.Errorf("round %d: %s", round, out)
				}
			})
		}
		wg.Wait()
		if err := s.Delete(t.Context(), "lock"); err != nil {
			t.Fatal(err)
		}
		put(t, s, "lock", "mine", object.IfAbsent())
		if err := s.Delete(t.Context(), "lock"); err != nil {
			t.Fatal(err)
		}
		if left, err := object.All(t.Context(), s, ""); err != nil || len(left) != 0 {
			t.Fatalf("left: %v, %v", left, err)
		}
	}
}

// TestFullDisk runs a process with a file size limit, whose writes fail halfway like on a full
// disk.
func TestFullDisk(t *testing.T) {
	root := t.TempDir()
	c, out := child(t, root, "overfill")
	if err := c.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := open(t, root)
	for key, body := range map[string]string{"old": "old", "small": "small"} {
		if o, err := s.Get(t.Context(), key); err != nil || string(o.Body) != body {
			t.Errorf("%s is %q, %v", key, o.Body, err)
		}
	}
	if left, err := object.All(t.Context(), s, ""); err != nil || len(left) != 2 {
		t.Errorf("listed %v, %v", left, err)
	}
	if files := files(t, root); len(files) != 4 {
		t.Errorf("failed writes left files behind: %q", files)
	}
}

func overfill(ctx context.Context, s *dir.Store) error {
	const limit = 64 << 10
	etag, err := s.Put(ctx, "old", []byte("old"), object.IfAbsent())
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGXFSZ) // so that a write fails instead
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		return err
	}
	big := make([]byte, 2*limit)
	for key, pre := range map[string]object.Precondition{"old": object.IfMatch(etag), "new": object.IfAbsent()} {
		if _, err := s.Put(ctx, key, big, pre); !errors.Is(err, object.ErrUnknown) || !errors.Is(err, syscall.EFBIG) {
			return fmt.Errorf("put of %s over the limit: %w", key, err)
		}
	}
	o, err := s.Get(ctx, "old")
	if err != nil || o.ETag != etag {
		return fmt.Errorf("old has etag %q, want %q: %w", o.ETag, etag, err)
	}
	_, err = s.Put(ctx, "small", []byte("small"), object.IfAbsent())
	return err
}

// files returns all regular files under root, by path.
func files(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(root, path)
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
