package etcd_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/nstance/nstance/cmd/dev-k8s/etcd"
	"github.com/nstance/nstance/cmd/dev-k8s/plane/planetest"
	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

// onFilesAndEtcd runs a test with etcd's client on the store of files and on etcd itself, which
// must behave alike.
func onFilesAndEtcd(t *testing.T, test func(*testing.T, *clientv3.Client)) {
	t.Helper()
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		_, client := serveFiles(t, store.Config{Root: t.TempDir()})
		test(t, client)
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		test(t, startEtcd(t))
	})
}

// serveFiles serves a store of files, and returns a client of it.
func serveFiles(t *testing.T, cfg store.Config) (*store.Store, *clientv3.Client) {
	t.Helper()
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := store.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran, served := make(chan error, 1), make(chan error, 1)
	server := etcd.New(s, nil)
	go func() { ran <- s.Run(ctx) }()
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		<-served
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, dial(t, listener.Addr().String())
}

func dial(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 3 * time.Minute, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// startEtcd starts the control plane's etcd.
func startEtcd(t *testing.T) *clientv3.Client {
	t.Helper()
	folder := planetest.Folder(t)
	addrs, err := planetest.Addresses(2)
	if err != nil {
		t.Fatal(err)
	}
	for i, addr := range addrs {
		addrs[i] = "http://" + addr
	}
	cmd := exec.Command(filepath.Join(folder, "etcd"), "--data-dir="+t.TempDir(), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+addrs[0], "--advertise-client-urls="+addrs[0], "--listen-peer-urls="+addrs[1],
		"--initial-advertise-peer-urls="+addrs[1], "--initial-cluster=default="+addrs[1])
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	c := dial(t, strings.TrimPrefix(addrs[0], "http://"))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		if _, err := c.Get(ctx, "/"); err == nil {
			return c
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// must fails the test on an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func pod(i int) string { return fmt.Sprintf("/registry/pods/default/p%03d", i) }

// text returns an arbitrary value, which is a valid object for the store.
func text(v int) string { return fmt.Sprintf("{\"v\":%d}\n", v) }
