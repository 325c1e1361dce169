package plane_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nstance/nstance/cmd/dev-k8s/plane"
	"github.com/nstance/nstance/cmd/dev-k8s/plane/planetest"
)

// cluster is an API server that is shared by all tests of the package.
type cluster struct {
	start   sync.Once
	err     error
	stop    func() error
	root    string // of the files, if it stores files
	config  *rest.Config
	client  *kubernetes.Clientset
	dynamic *dynamic.DynamicClient
}

var overFiles, overEtcd cluster

func TestMain(m *testing.M) {
	code := m.Run()
	for _, c := range []*cluster{&overFiles, &overEtcd} {
		if c.stop != nil {
			if err := c.stop(); err != nil {
				fmt.Fprintln(os.Stderr, "stop:", err)
				code = max(code, 1)
			}
		}
	}
	os.Exit(code)
}

// files returns the API server over files.
func files(t *testing.T) *cluster {
	t.Helper()
	folder := planetest.Folder(t)
	overFiles.start.Do(func() { overFiles.err = overFiles.startFiles(folder) })
	return overFiles.ready(t)
}

// etcd returns the same API server over etcd.
func etcd(t *testing.T) *cluster {
	t.Helper()
	folder := planetest.Folder(t)
	overEtcd.start.Do(func() { overEtcd.err = overEtcd.startEtcd(folder) })
	return overEtcd.ready(t)
}

func (c *cluster) ready(t *testing.T) *cluster {
	t.Helper()
	if c.err != nil {
		t.Fatal(c.err)
	}
	return c
}

func (c *cluster) startFiles(folder string) error {
	temp, err := os.MkdirTemp("", "dev-k8s-files-")
	if err != nil {
		return err
	}
	free, err := planetest.Addresses(1)
	if err != nil {
		return err
	}
	c.root = filepath.Join(temp, "dev-k8s")
	ctx, cancel := context.WithCancel(context.Background())
	up, ended := make(chan struct{}), make(chan error, 1)
	cfg := plane.Config{
		Root: c.root, Logs: temp, Addr: free[0], Kubeconfig: filepath.Join(temp, "kubeconfig"), Folder: folder,
		Log: slog.New(slog.DiscardHandler), Ready: func(string) { close(up) },
	}
	go func() { ended <- plane.Run(ctx, cfg) }()
	c.stop = func() error {
		cancel()
		return errors.Join(<-ended, os.RemoveAll(temp))
	}
	select {
	case <-up:
		return c.connect(cfg.Kubeconfig)
	case err := <-ended:
		ended <- nil
		return err
	}
}

func (c *cluster) startEtcd(folder string) error {
	temp, err := os.MkdirTemp("", "dev-k8s-etcd-")
	if err != nil {
		return err
	}
	free, err := planetest.Addresses(3)
	if err != nil {
		return err
	}
	client, peer := "http://"+free[0], "http://"+free[1]
	cmd := exec.Command(filepath.Join(folder, "etcd"), "--data-dir="+filepath.Join(temp, "etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if err := cmd.Start(); err != nil {
		return err
	}
	api := &plane.API{
		Folder: folder, Keys: filepath.Join(temp, "pki"), Logs: temp, Addr: free[2], Etcd: client,
		Kubeconfig: filepath.Join(temp, "kubeconfig"), Log: slog.New(slog.DiscardHandler),
	}
	c.stop = func() error {
		api.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return os.RemoveAll(temp)
	}
	if _, err := api.Prepare(time.Now()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := api.Start(ctx); err != nil {
		return err
	}
	return c.connect(api.Kubeconfig)
}

func (c *cluster) connect(kubeconfig string) error {
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return err
	}
	c.config.QPS = -1 // unlimited
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	c.dynamic, err = dynamic.NewForConfig(c.config)
	return err
}

// timeout is long, because the machine may be busy.
const timeout = 3 * time.Minute

// eventually repeats a check until it returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, timeout, err)
		}
	}
}
