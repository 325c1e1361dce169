package s3_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/dev/s3"
	"github.com/nstance/nstance/pkg/freeport"
	"github.com/nstance/nstance/pkg/leaktest"
)

// The variables that make this test binary run as a server, which is then killed.
const (
	childRoot = "DEV_S3_TEST_ROOT"
	childAddr = "DEV_S3_TEST_ADDR"
)

func TestMain(m *testing.M) {
	if root := os.Getenv(childRoot); root != "" {
		err := s3.Run(context.Background(), os.Getenv(childAddr), config(root))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leaktest.Main(m.Run)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	ports, err := freeport.Find(1)
	if err != nil {
		t.Fatal(err)
	}
	return freeport.Address(ports[0])
}

func answers(addr string) bool {
	resp, err := http.Get("http://" + addr + s3.RequestsPath)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// TestRunStops: at the end of the context Run returns without an error, and frees port and
// directory, even with a stalled client.
func TestRunStops(t *testing.T) {
	root, addr := t.TempDir(), freeAddr(t)
	cfg := config(root)
	cfg.Logger = slog.New(slog.DiscardHandler)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s3.Run(ctx, addr, cfg) }()
		waitFor(t, "the server", func() bool { return answers(addr) })
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
}

func TestPortTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	err = s3.Run(t.Context(), ln.Addr().String(), config(t.TempDir()))
	if want := fmt.Sprintf("--addr: listen on %s: the port is in use by another process", ln.Addr()); err == nil || err.Error() != want {
		t.Errorf("run: %v, want %s", err, want)
	}
	err = s3.Run(t.Context(), "nonsense", config(t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("run on nonsense: %v", err)
	}
}

// TestKill kills the server several times during writes: acknowledged objects must be complete,
// with the ETag of the reply.
func TestKill(t *testing.T) {
	root, addr := t.TempDir(), freeAddr(t)
	acked := map[string]string{} // key -> ETag
	for round := range 4 {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), childRoot+"="+root, childAddr+"="+addr)
		out, err := c.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, bufio.NewReader(out))
		waitFor(t, "the server", func() bool { return answers(addr) })
		verify(t, addr, acked)
		var mu sync.Mutex
		var wg sync.WaitGroup
		var once sync.Once
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					key := fmt.Sprintf("r%d/w%d/%d", round, w, i%5)
					etag, err := send(addr, key, strings.Repeat(strconv.Itoa(i), 1000))
					if err != nil {
						mu.Lock()
						delete(acked, key) // it is unknown whether this write was applied
						mu.Unlock()
						return
					}
					mu.Lock()
					acked[key] = etag
					mu.Unlock()
					if i == 5+round {
						once.Do(func() { _ = c.Process.Kill() })
					}
				}
			})
		}
		wg.Wait()
		_ = c.Wait()
	}
	server, err := s3.New(config(root))
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
}

func send(addr, key, body string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+addr+"/dev/"+key, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := client().Do(r)
	if err != nil {
		return "", err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp.Header.Get("ETag"), nil
}

func verify(t *testing.T, addr string, acked map[string]string) {
	t.Helper()
	for key, etag := range acked {
		resp, err := client().Get("http://" + addr + "/dev/" + key)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.Header.Get("ETag") != etag || md5Of(string(body)) != etag {
			t.Errorf("%s: %.10q... with etag %s, %v; acknowledged %s", key, body, resp.Header.Get("ETag"), err, etag)
		}
	}
}
