// Package aws stands in for AWS on one machine: the services and the metadata of
// awsfake on one address, and machines that run as processes. It is for development and
// for stories; nothing of it is safe to show to a network.
package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

// Config is what is served.
type Config struct {
	Cloud *awsfake.Cloud
	// Run is a directory in which the userdata of machines runs, each in a folder of
	// its own; empty: machines do nothing.
	Run    string
	Logger *slog.Logger
}

// Stand is what is served. It is safe for concurrent use.
type Stand struct {
	cfg Config

	mu       sync.Mutex
	metadata map[string]string // where a machine's is, by machine
	services []*http.Server
}

// Listen serves cfg on an address, host:port, until ctx ends.
func Listen(ctx context.Context, addr string, cfg Config) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve AWS: --addr: %w", err)
	}
	return New(cfg).Serve(ctx, l)
}

// New makes what Serve serves.
func New(cfg Config) *Stand { return &Stand{cfg: cfg, metadata: map[string]string{}} }

// Serve serves on l, which it closes, until ctx ends. The machines' processes end with
// it.
func (s *Stand) Serve(ctx context.Context, l net.Listener) error {
	s.cfg.Logger.Info("AWS is here", slog.String("AWS_ENDPOINT_URL", "http://"+l.Addr().String()))
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	if s.cfg.Run != "" {
		running.Go(func() { s.runMachines(ctx) })
	}
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		_ = server.Close() // whoever is being answered may ask again
		err = <-ended
	}
	stop()
	running.Wait()
	s.endMetadata()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// handler has on one address the services of the cloud, and below /-/ what people do by
// hand:
//
//	GET  /-/machines
//	GET  /-/interfaces
//	GET  /-/machines/INSTANCE/metadata  what AWS_EC2_METADATA_SERVICE_ENDPOINT is on it
//	POST /-/machines/INSTANCE/interrupt?after=2m
//	POST /-/machines/INSTANCE/kill
//	POST /-/machines/INSTANCE/stop
//	POST /-/machines/INSTANCE/hang
func (s *Stand) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", s.cfg.Cloud)
	mux.HandleFunc("GET /-/machines", func(w http.ResponseWriter, _ *http.Request) { show(w, s.cfg.Cloud.Machines()) })
	mux.HandleFunc("GET /-/interfaces", func(w http.ResponseWriter, _ *http.Request) { show(w, s.cfg.Cloud.Interfaces()) })
	mux.HandleFunc("GET /-/machines/{instance}/metadata", s.where)
	mux.HandleFunc("POST /-/machines/{instance}/{what}", s.harm)
	return mux
}

// harm does to a machine what happens to machines.
func (s *Stand) harm(w http.ResponseWriter, r *http.Request) {
	instance, err := r.PathValue("instance"), error(nil)
	switch what := r.PathValue("what"); what {
	case "interrupt":
		after := r.URL.Query().Get("after")
		if after == "" {
			after = "2m" // as EC2 gives
		}
		var d time.Duration
		if d, err = time.ParseDuration(after); err != nil || d < 0 {
			err = fmt.Errorf("after is %.40q: want a duration such as 2m", after)
			break
		}
		err = s.cfg.Cloud.Interrupt(instance, d)
	case "kill":
		err = s.cfg.Cloud.Kill(instance, "Server.InternalError", "Server.InternalError: Internal error on launch")
	case "stop":
		err = s.cfg.Cloud.Stop(instance)
	case "hang":
		err = s.cfg.Cloud.Hang(instance)
	default:
		err = fmt.Errorf("%.40q can't be done to a machine: want interrupt, kill, stop or hang", what)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func show(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // to a caller who is gone
}
