// Package aws serves a stand-in for AWS on one machine, for development and for the integration
// stories: the services and the metadata of awstest, with machines that run as processes. Launching
// a machine means running a program here, so all calls have to be signed, and package gate keeps
// web pages out.
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

	"github.com/nstance/nstance/pkg/dev/gate"
	"github.com/nstance/nstance/pkg/provider/aws/awstest"
	"github.com/nstance/nstance/pkg/sigv4"
)

// Config is the configuration of a Server.
type Config struct {
	// Cloud also has the keys of the manual calls below /-/. Those of a machine's role are refused
	// there.
	Cloud *awstest.Cloud
	// Network allows Listen to use an address that other machines can reach.
	Network bool
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Run is the directory in which each machine has a folder where its userdata runs; empty:
	// machines run nothing.
	Run    string
	Logger *slog.Logger
}

// Server serves a Cloud. It is safe for concurrent use.
type Server struct {
	cfg   Config
	bound string // the address passed to Listen; empty: any

	mu       sync.Mutex
	metadata map[string]string // URLs of metadata services, by machine
	services []*http.Server
}

// Listen serves cfg on addr (host:port) until ctx ends.
func Listen(ctx context.Context, addr string, cfg Config) error {
	l, err := gate.Listen(ctx, addr, cfg.Network)
	if err != nil {
		return fmt.Errorf("serve AWS: %w", err)
	}
	s := New(cfg)
	s.bound = addr
	return s.Serve(ctx, l)
}

// New returns a Server that is not listening yet.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Server{cfg: cfg, metadata: map[string]string{}}
}

// Serve serves on l until ctx ends, then closes l and kills the machines' processes.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.cfg.Logger.Info("AWS is here", slog.String("AWS_ENDPOINT_URL", "http://"+l.Addr().String()))
	server := &http.Server{Handler: gate.Local(s.bound, s.handler()), ReadHeaderTimeout: time.Minute}
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
		_ = server.Close() // clients can retry
		err = <-ended
	}
	stop()
	running.Wait()
	s.closeMetadata()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// handler serves the cloud's services, and below /-/ the manual calls:
//
//	GET  /-/machines
//	GET  /-/interfaces
//	GET  /-/machines/INSTANCE/metadata  the machine's AWS_EC2_METADATA_SERVICE_ENDPOINT
//	POST /-/machines/INSTANCE/interrupt?after=2m
//	POST /-/machines/INSTANCE/kill
//	POST /-/machines/INSTANCE/stop
//	POST /-/machines/INSTANCE/hang
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", s.cfg.Cloud)
	byHand := func(pattern string, do http.HandlerFunc) { mux.Handle(pattern, s.requireSignature(do)) }
	byHand("/-/", http.NotFound)
	byHand("GET /-/machines", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.cfg.Cloud.Machines()) })
	byHand("GET /-/interfaces", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.cfg.Cloud.Interfaces()) })
	byHand("GET /-/machines/{instance}/metadata", s.serveMetadataURL)
	byHand("POST /-/machines/{instance}/{what}", s.disrupt)
	return mux
}

// maxSkew is how far the clock of a manual call may be off.
const maxSkew = 15 * time.Minute

// requireSignature wraps a handler and refuses requests that are not signed with one of the cloud's
// own keys: those of a machine's role are only for calls to services.
func (s *Server) requireSignature(do http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		signed, err := sigv4.Parse(r)
		secret, known := s.cfg.Cloud.IAM.Secret(signed.KeyID, "")
		switch {
		case err == nil && s.cfg.Now().Sub(signed.At).Abs() > maxSkew:
			err = fmt.Errorf("the request is of %s: want at most %s from now", signed.At.Format(time.RFC3339), maxSkew)
		case err == nil && (!known || signed.Token != "" || r.ContentLength != 0 || !signed.Check(r, secret, sigv4.Sum(nil))):
			err = errors.New("not signed with a key of this stand-in, or with a body")
		}
		if err != nil {
			http.Error(w, fmt.Sprintf("%v: want a request such as curl --aws-sigv4 aws:amz:us-east-1:ec2 "+
				"--user \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\"", err), http.StatusForbidden)
			return
		}
		do(w, r)
	})
}

// disrupt injects a failure into a machine.
func (s *Server) disrupt(w http.ResponseWriter, r *http.Request) {
	instance, err := r.PathValue("instance"), error(nil)
	switch what := r.PathValue("what"); what {
	case "interrupt":
		after := r.URL.Query().Get("after")
		if after == "" {
			after = "2m" // as on EC2
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

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // the error is that of a client that has gone
}
