// Package plane runs a real kube-apiserver over a store of files: the etcd that it
// speaks to, its keys, and Kubernetes' own controllers beside it.
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

// startTimeout bounds the start of everything.
const startTimeout = 2 * time.Minute

// Config is what the program is called with.
type Config struct {
	// Root is the folder of the objects, Logs that of what the parts say.
	Root, Logs string
	// Addr is where the API server listens.
	Addr string
	// Kubeconfig is the file that is written for an administrator.
	Kubeconfig string
	// Folder has the control plane's programs; empty: where .ci/plane says.
	Folder string
	Log    *slog.Logger
	// Ready, if there is one, is called with the URL once all is up.
	Ready func(url string)
}

// Run serves until the context ends, and returns when nothing runs any more.
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
	// What the parts rely on ends after them.
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
		return nil // told to end
	}
	return err
}

// run returns why it was not up, or is no longer.
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

// stop ends streams too, which would last as long as their clients.
func stop(server *grpc.Server) { server.Stop() }

// Folder returns where the control plane's programs are: as told, or as .ci/plane
// says, from the repository's top folder.
func Folder(ctx context.Context, told string) (string, error) {
	if told != "" {
		return told, nil
	}
	find := exec.CommandContext(ctx, filepath.Join(".ci", "plane"), "-n")
	find.Stderr = os.Stderr
	out, err := find.Output()
	if err != nil {
		return "", fmt.Errorf("ask .ci/plane where the control plane is: %w: --plane says it too", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// free says in time that somebody else is there.
func free(ctx context.Context, addr string) error {
	listen := net.ListenConfig{}
	l, err := listen.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}
