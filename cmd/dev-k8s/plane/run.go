// Package plane runs a real kube-apiserver on a store of files: with the etcd that it uses,
// its keys, and Kubernetes' own controllers.
package plane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/cmd/dev-k8s/etcd"
	"github.com/nstance/nstance/cmd/dev-k8s/store"
)

// startTimeout bounds the start of all processes.
const startTimeout = 2 * time.Minute

// Config configures Run.
type Config struct {
	// Root is the folder of the objects, Logs that of the processes' logs.
	Root, Logs string
	// Addr is the API server's listen address.
	Addr string
	// Kubeconfig is the administrator's kubeconfig to write.
	Kubeconfig string
	// Folder has the control plane's programs; empty: that of .ci/plane.
	Folder string
	Log    *slog.Logger
	// Ready, if set, is called with the URL once everything is ready.
	Ready func(url string)
}

// Run serves until ctx ends, and returns when all processes have stopped.
func Run(ctx context.Context, cfg Config) error {
	folder, err := Folder(ctx, cfg.Folder)
	if err != nil {
		return err
	}
	api := &API{
		Folder: folder, Keys: filepath.Join(cfg.Root, ".pki"), Logs: cfg.Logs, Addr: cfg.Addr, Kubeconfig: cfg.Kubeconfig, Log: cfg.Log,
	}
	if err := free(ctx, cfg.Addr); err != nil {
		return err
	}
	files, err := store.Open(store.Config{Root: cfg.Root, Log: cfg.Log})
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, cfg, files, api), files.Close())
}

func serve(ctx context.Context, cfg Config, files *store.Store, api *API) error {
	secure, err := api.Prepare(time.Now())
	if err != nil {
		return err
	}
	listen := net.ListenConfig{}
	listener, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	api.Etcd = "https://" + listener.Addr().String()
	server := etcd.New(files, secure)
	// What the processes depend on stops after them.
	below, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	serving, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go func() { fail(fmt.Errorf("serve etcd: %w", server.Serve(listener))) }()
	go func() { fail(files.Run(below)) }()
	err = run(serving, cfg, api)
	api.Stop()
	stop(server)
	if ctx.Err() != nil {
		return nil // ctx ended
	}
	return err
}

// run returns why it did not become ready, or why it stopped.
func run(serving context.Context, cfg Config, api *API) error {
	starting, cancel := context.WithTimeout(serving, startTimeout)
	defer cancel()
	if err := api.Start(starting); err != nil {
		return errors.Join(context.Cause(serving), err)
	}
	cfg.Log.Info("ready", slog.String("url", api.URL()), slog.String("kubeconfig", cfg.Kubeconfig), slog.String("files", cfg.Root))
	if cfg.Ready != nil {
		cfg.Ready(api.URL())
	}
	<-serving.Done()
	return context.Cause(serving)
}

// stop also cuts streams, which would last as long as their clients.
func stop(server *grpc.Server) { server.Stop() }

// Folder returns the folder of the control plane's programs: told, or that of .ci/plane, which
// runs in the repository's top folder.
func Folder(ctx context.Context, told string) (string, error) {
	if told != "" {
		return told, nil
	}
	find := exec.CommandContext(ctx, filepath.Join(".ci", "plane"), "-n")
	find.Stderr = os.Stderr
	out, err := find.Output()
	if err != nil {
		return "", fmt.Errorf("run .ci/plane to find the control plane: %w: or set --plane", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// free fails early if another process uses the address.
func free(ctx context.Context, addr string) error {
	listen := net.ListenConfig{}
	l, err := listen.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}
