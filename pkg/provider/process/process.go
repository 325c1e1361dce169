// Package process is a provider whose machines are child processes that run
// nstance-agent, for development and for hosts without a container engine.
//
// Each instance is a folder, {dir}/{shard}/{id}:
//
//	lock        held (flock) by whoever creates or deletes the instance
//	state.json  the tags; written before the spawn, removed last
//	pid         the process and its start, written by the child itself
//	deleting    there once a deletion was asked for
//	exit        how the process ended, written by the server that started it
//	identity/   ca.crt and nonce.jwt before the start, then the agent's own
//	keys/ recv/ the agent's
//	agent.log   its output
//
// The folder is the only record, so a restarted server and the other server of
// the shard, which share dir, find the same instances. The child inherits the
// lock and lets go of it only when its pid is on disk: whoever gets the lock and
// finds no pid knows that nothing was started, even after a crash in between, so
// a create that is asked again starts exactly one process.
//
// A process lives in a session of its own and outlives the server. It counts as
// alive while a process of its pid with its start time exists that is no zombie;
// a pid used again by another process is thus never mistaken for it.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider"
)

// Config says where the instances live and what they run.
type Config struct {
	Scope provider.Scope
	// Dir holds a folder per shard. The servers of a shard share it.
	Dir string
	// Agent is the path of the nstance-agent binary.
	Agent string
	// Env is added to every agent's environment.
	Env map[string]string
	// Kubeconfig is the way to an API server that is to have a Node for each
	// process, which whoever opens the provider sees to; empty: none.
	Kubeconfig string
	// StopGrace is how long a deleted agent has from SIGTERM to SIGKILL.
	StopGrace time.Duration
	// ScanInterval is how often Watch looks for what others did in Dir. Deaths
	// are seen at once.
	ScanInterval time.Duration
	Logger       *slog.Logger
}

// Default returns the settings that an empty options object stands for.
func Default(scope provider.Scope, logger *slog.Logger) Config {
	return Config{Scope: scope, StopGrace: 5 * time.Second, ScanInterval: 500 * time.Millisecond, Logger: logger}
}

// options are the provider's options in the shard's config.
type options struct {
	Dir          string            `json:"dir"`
	Agent        string            `json:"agent"`
	Env          map[string]string `json:"env"`
	StopGrace    string            `json:"stop_grace"`
	ScanInterval string            `json:"scan_interval"`
	Kubeconfig   string            `json:"kubeconfig"`
}

// WithOptions returns cfg with the options of the shard's config on top: dir,
// agent, kubeconfig, env (an object of strings), stop_grace and scan_interval
// (durations, such as "5s"). Anything else is an error that names it.
func (cfg Config) WithOptions(values map[string]any) (Config, error) {
	o := options{
		Dir: cfg.Dir, Agent: cfg.Agent, Kubeconfig: cfg.Kubeconfig, StopGrace: cfg.StopGrace.String(), ScanInterval: cfg.ScanInterval.String(),
	}
	if wrong := provider.Decode("options", values, &o); len(wrong) > 0 {
		return Config{}, wrong
	}
	cfg.Dir, cfg.Agent, cfg.Kubeconfig = o.Dir, o.Agent, o.Kubeconfig
	if o.Env != nil {
		cfg.Env = o.Env
	}
	for _, d := range []struct {
		name, text string
		to         *time.Duration
	}{{"stop_grace", o.StopGrace, &cfg.StopGrace}, {"scan_interval", o.ScanInterval, &cfg.ScanInterval}} {
		v, err := time.ParseDuration(d.text)
		if err != nil {
			message := fmt.Sprintf("%.80q is not valid: want a duration such as 5s", d.text)
			return Config{}, provider.FieldErrors{{Path: "options." + d.name, Message: message}}
		}
		*d.to = v
	}
	return cfg, nil
}

// CheckOptions reports, as FieldErrors, what is wrong with what WithOptions sets. It is
// pure: what is about this machine Validate adds.
func (cfg Config) CheckOptions() error {
	var wrong provider.FieldErrors
	if cfg.Dir == "" {
		wrong.Addf("options.dir", "required: want the folder that holds the instances")
	}
	if cfg.Agent == "" {
		wrong.Addf("options.agent", "required: want the path of the nstance-agent binary")
	}
	if cfg.StopGrace <= 0 {
		wrong.Addf("options.stop_grace", "%v is not valid: want more than 0", cfg.StopGrace)
	}
	if cfg.ScanInterval <= 0 {
		wrong.Addf("options.scan_interval", "%v is not valid: want more than 0", cfg.ScanInterval)
	}
	return append(wrong, provider.CheckEnvironment("options.env", cfg.Env)...).Err()
}

// Validate reports every problem of cfg at once.
func (cfg Config) Validate() error {
	problems := []error{cfg.Scope.Check(), cfg.CheckOptions()}
	if cfg.Agent != "" {
		problems = append(problems, checkAgent(cfg.Agent))
	}
	if cfg.Logger == nil {
		problems = append(problems, errors.New("the logger is missing"))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	}
	return nil
}

// checkAgent reports why path can't be run.
func checkAgent(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("options.agent: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("options.agent: %s is not an executable file", path)
	}
	return nil
}

// Provider makes processes. It is safe for concurrent use, also together with
// other Providers, in this process or another, over the same Dir.
type Provider struct {
	cfg    Config
	root   string      // {dir}/{shard}, absolute
	opened os.FileInfo // what root was when it was opened

	background context.Context // ends with Close
	stop       context.CancelFunc
	work       sync.WaitGroup // deletions, and ends that are written down

	mu       sync.Mutex
	ending   map[string]bool // names whose deletion this Provider is finishing
	unreaped map[string]int  // pids of children whose end was not written down yet, by name
	watchers map[*watcher]struct{}
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Watcher  = (*Provider)(nil)

	_ provider.ArgsChecker     = (*Provider)(nil)
	_ provider.ArgsChecker     = Config{} // before there is a Provider
	_ provider.ConsistentReads = (*Provider)(nil)
)

// ConsistentReads implements provider.ConsistentReads: every answer is read from
// the folders and the process table of this host.
func (p *Provider) ConsistentReads() bool { return true }

// New checks cfg and opens the shard's folder, making it when it is missing.
func New(cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the process provider: %w", err)
	}
	if err := checkSystem(); err != nil {
		return nil, fmt.Errorf("open the process provider: %w", err)
	}
	root, err := filepath.Abs(filepath.Join(cfg.Dir, cfg.Scope.Shard))
	if err != nil {
		return nil, fmt.Errorf("open the process provider's folder: %w", err)
	}
	if cfg.Agent, err = filepath.Abs(cfg.Agent); err != nil {
		return nil, fmt.Errorf("find the agent binary: %w", err)
	}
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("open the process provider's folder: %w", err)
	}
	opened, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("open the process provider's folder: %w", err)
	}
	p := &Provider{
		cfg: cfg, root: root, opened: opened,
		ending: map[string]bool{}, unreaped: map[string]int{}, watchers: map[*watcher]struct{}{},
	}
	p.background, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// Close stops what this Provider does on its own: deletions under way stay half
// done until Delete is asked again, and how its children end is not written down. The
// instances live on. It returns once all that has stopped, and may be called more than
// once.
func (p *Provider) Close() {
	p.mu.Lock() // whoever adds to the work holds it too
	p.stop()
	p.mu.Unlock()
	p.work.Wait()
}
