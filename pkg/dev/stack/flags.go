package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"
)

// Flags are the values of the command line's flags; paths may be relative.
type Flags struct {
	Bin      string
	Examples string
	Temp     string
	Provider string
	Standby  bool
	// PortOffset is added to all ports: a number in decimal; empty: 0.
	PortOffset string
	Life       time.Duration // of client certificates; 0: the server's default
	// Kubeconfig is that of the API server which gets a Node for each instance; empty: none.
	Kubeconfig string
	Kubernetes bool   // run the operator too, on the stack's own API server unless Kubeconfig names another
	Repository string // the source of the control plane and the manifests
	Plane      string // folder of a control plane that is built already; empty: it is built from Repository
	Watch      string // command that builds changes in Repository; empty: changes are not watched
}

func (f Flags) config(ctx context.Context, out io.Writer) (Config, error) {
	cfg := Config{
		Bin: f.Bin, Examples: f.Examples, Temp: f.Temp, Provider: f.Provider, Standby: f.Standby, Life: f.Life,
		Kubeconfig: f.Kubeconfig, Kubernetes: f.Kubernetes, Repository: f.Repository, Plane: f.Plane, Watch: f.Watch,
		Out: out, Logger: slog.New(slog.NewTextHandler(out, nil)),
	}
	for _, p := range []*string{&cfg.Bin, &cfg.Examples, &cfg.Temp, &cfg.Kubeconfig, &cfg.Repository, &cfg.Plane} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return Config{}, err
		}
		*p = abs
	}
	if cfg.Kubernetes && cfg.Kubeconfig == "" {
		cfg.Kubeconfig = cfg.devKubeconfig()
	}
	if f.PortOffset != "" {
		offset, err := strconv.Atoi(f.PortOffset)
		if err != nil || offset < 0 || offset > maxPortOffset {
			return Config{}, fmt.Errorf("port-offset (DEV_PORT_OFFSET): %q is not valid: want a number from 0 to %d", f.PortOffset, maxPortOffset)
		}
		cfg.PortOffset = offset
	}
	switch cfg.Provider {
	case "":
		cfg.Provider = "process"
		if engineAvailable(ctx) {
			cfg.Provider = "docker"
		}
	case "docker", "process":
	default:
		return Config{}, fmt.Errorf("provider (DEV_PROVIDER): %q is not valid: want docker or process", cfg.Provider)
	}
	cfg.Host = "127.0.0.1"
	if cfg.Provider == "docker" {
		// A container can't reach the host's loopback address.
		cfg.Host = ""
	}
	return cfg, nil
}

// Run runs the stack in the foreground until ctx ends.
func (f Flags) Run(ctx context.Context, out io.Writer) error {
	cfg, err := f.config(ctx, out)
	if err != nil {
		return err
	}
	if cfg.Provider == "docker" {
		if err := buildImage(ctx, cfg); err != nil {
			return err
		}
	}
	s, err := New(cfg)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// Status prints the components as a table.
func (f Flags) Status(ctx context.Context, out io.Writer) error {
	r, err := NewClient(f.Temp).Status(ctx)
	if err != nil {
		return err
	}
	if os.Getenv("DEV_OUTPUT") == "json" {
		return json.NewEncoder(out).Encode(r)
	}
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "COMPONENT\tPID\tHEALTHY\tRESTARTS\tDETAIL\n")
	for _, c := range r.Components {
		fmt.Fprintf(w, "%s\t%d\t%t\t%d\t%s\n", c.Name, c.PID, c.Healthy, c.Restarts, c.Detail)
	}
	return w.Flush()
}

// Guard runs the guard until the supervisor has ended.
func (f Flags) Guard(ctx context.Context, pipe io.Reader) error {
	cfg, err := f.config(ctx, io.Discard)
	if err != nil {
		return err
	}
	return Guard(ctx, cfg, pipe)
}
