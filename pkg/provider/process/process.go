// Package process is a provider whose VMs are child processes running nstance-agent, for
// development and for hosts without a container engine.
//
// Each instance is a folder, {dir}/{shard}/{id}:
//
//	lock        held (flock) by the server that creates or deletes the instance
//	life        held (flock) by the process, which inherits it, until it ends
//	state.json  the tags; written before the spawn, removed last
//	pid         the process and its start time, written by the server that started it
//	deleting    exists once a deletion was requested
//	exit        how the process ended, written by the server that started it
//	identity/   ca.crt and nonce.jwt before the start, then the agent's own
//	keys/ recv/ the agent's
//	agent.log   its output; the end of it is kept in {dir}/{shard}/.logs/{id}.log
//
// The folder is the only record, so a restarted server and the shard's other server, which
// share dir, find the same instances. If a holder of the lock finds no pid and nothing that
// holds life, nothing was started; a process whose server died before it recorded the PID is
// found by life and recorded then. So a repeated create starts exactly one process.
//
// Agents with users of their own can neither read nor modify anything of the server's or of
// other agents: they own only identity, keys and recv.
//
// A process has a session of its own and outlives the server. It counts as alive while a
// process with its PID and start time exists that is not a zombie, so a reused PID is never
// mistaken for it.
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

// Config is the configuration of a Provider.
type Config struct {
	Scope provider.Scope
	// Dir has a folder per shard. The servers of a shard share it.
	Dir string
	// Agent is the path of the nstance-agent binary.
	Agent string
	// Env is added to every agent's environment.
	Env map[string]string
	// ArgsEnv lists the variables that args may set besides provider.OpenVariables: names, or
	// prefixes followed by a star.
	ArgsEnv []string
	// UserRange is the range of Users that agents run as, in the form of ParseUsers; empty: the
	// server's own user.
	UserRange string
	// StopGrace is the time between SIGTERM and SIGKILL for a deleted agent.
	StopGrace time.Duration
	// ScanInterval is how often Watch scans Dir for changes made by other processes. Exits are
	// seen at once.
	ScanInterval time.Duration
	Logger       *slog.Logger
}

// Default returns the default settings, as for an empty options object.
func Default(scope provider.Scope, logger *slog.Logger) Config {
	return Config{Scope: scope, StopGrace: 5 * time.Second, ScanInterval: 500 * time.Millisecond, Logger: logger}
}

// options are the provider's options in the shard's config.
type options struct {
	Dir          string            `json:"dir"`
	Agent        string            `json:"agent"`
	Env          map[string]string `json:"env"`
	ArgsEnv      []string          `json:"args_env"`
	UserRange    string            `json:"user_range"`
	StopGrace    string            `json:"stop_grace"`
	ScanInterval string            `json:"scan_interval"`
}

// WithOptions returns cfg with the options of the shard's config: dir, agent, env (an object of
// strings), args_env (a list), user_range, stop_grace and scan_interval (durations such as
// "5s"). Others are errors.
func (cfg Config) WithOptions(values map[string]any) (Config, error) {
	o := options{
		Dir: cfg.Dir, Agent: cfg.Agent, ArgsEnv: cfg.ArgsEnv, UserRange: cfg.UserRange,
		StopGrace: cfg.StopGrace.String(), ScanInterval: cfg.ScanInterval.String(),
	}
	if wrong := provider.Decode("options", values, &o); len(wrong) > 0 {
		return Config{}, wrong
	}
	cfg.Dir, cfg.Agent, cfg.ArgsEnv, cfg.UserRange = o.Dir, o.Agent, o.ArgsEnv, o.UserRange
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

// CheckOptions returns, as FieldErrors, the problems of the options. It is pure: Validate adds
// the checks of this machine.
func (cfg Config) CheckOptions() error {
	var wrong provider.FieldErrors
	if cfg.Dir == "" {
		wrong.Addf("options.dir", "required: want the folder of the instances")
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
	if _, err := ParseUsers(cfg.UserRange); err != nil {
		wrong.Addf("options.user_range", "%.80q is not valid: %v", cfg.UserRange, err)
	}
	wrong = append(wrong, provider.CheckArgsEnv("options.args_env", cfg.ArgsEnv)...)
	return append(wrong, provider.CheckEnvironment("options.env", cfg.Env)...).Err()
}

// Validate returns all problems of cfg.
func (cfg Config) Validate() error {
	problems := []error{cfg.Scope.Check(), cfg.CheckOptions()}
	if cfg.Agent != "" {
		problems = append(problems, checkAgent(cfg.Agent))
	}
	if users, err := ParseUsers(cfg.UserRange); err == nil && !users.Shared() && os.Geteuid() != 0 {
		problems = append(problems, fmt.Errorf("options.user_range: %q: only root can start processes as other users, and this is user %d: "+
			"remove it", cfg.UserRange, os.Geteuid()))
	}
	if cfg.Logger == nil {
		problems = append(problems, errors.New("the logger is missing"))
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w: %w", provider.ErrInvalid, err)
	}
	return nil
}

// checkAgent returns an error if path is not executable.
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

// Provider is a provider of processes. It is safe for concurrent use, also with other Providers
// over the same Dir in this process or another.
type Provider struct {
	cfg    Config
	users  Users
	root   string      // {dir}/{shard}, absolute
	opened os.FileInfo // identifies root as it was opened
	ends   ender

	background context.Context // ends with Close
	stop       context.CancelFunc
	work       sync.WaitGroup // background deletions, and recording of exits

	mu       sync.Mutex
	ending   map[string]bool // instances being deleted by this Provider
	unreaped map[string]int  // PIDs of children whose exit is not recorded yet, by name
	watchers map[*watcher]struct{}
}

var (
	_ provider.Provider = (*Provider)(nil)
	_ provider.Watcher  = (*Provider)(nil)

	_ provider.ArgsChecker     = (*Provider)(nil)
	_ provider.ArgsChecker     = Config{} // usable without a Provider
	_ provider.ConsistentReads = (*Provider)(nil)
)

// ConsistentReads implements provider.ConsistentReads: every answer is read from the folders
// and this host's process table.
func (p *Provider) ConsistentReads() bool { return true }

// New validates cfg and opens the shard's folder, creating it if it is missing.
func New(cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the process provider: %w", err)
	}
	if err := checkSystem(); err != nil {
		return nil, fmt.Errorf("open the process provider: %w", err)
	}
	if err := keepInherited(); err != nil {
		return nil, fmt.Errorf("open the process provider: %w", err)
	}
	root, err := filepath.Abs(filepath.Join(cfg.Dir, cfg.Scope.Shard))
	if err != nil {
		return nil, fmt.Errorf("open the process provider's folder: %w", err)
	}
	if cfg.Agent, err = filepath.Abs(cfg.Agent); err != nil {
		return nil, fmt.Errorf("find the agent binary: %w", err)
	}
	users, err := ParseUsers(cfg.UserRange)
	if err != nil {
		return nil, fmt.Errorf("configure the process provider: %w", err) // unreachable after Validate
	}
	if err := makeRoot(root, users); err != nil {
		return nil, fmt.Errorf("open the process provider's folder: %w", err)
	}
	opened, err := os.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("open the process provider's folder: %w", err)
	}
	p := &Provider{
		cfg: cfg, users: users, root: root, opened: opened, ends: ender{users, filepath.Dir(root), cfg.Logger},
		ending: map[string]bool{}, unreaped: map[string]int{}, watchers: map[*watcher]struct{}{},
	}
	p.background, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// makeRoot creates the shard's folder. If agents run as other users, those may traverse it to
// their own folders, but not list it.
func makeRoot(root string, users Users) error {
	if users.Shared() {
		return os.MkdirAll(root, 0o700)
	}
	if err := os.MkdirAll(root, 0o711); err != nil {
		return err
	}
	return os.Chmod(root, 0o711)
}

// Close stops this Provider's background work: deletions stay half done until Delete is
// repeated, and exits of its children are not recorded. The instances live on. It returns when
// all work has stopped. Idempotent.
func (p *Provider) Close() {
	p.mu.Lock() // also held when work is added
	p.stop()
	p.mu.Unlock()
	p.work.Wait()
}
