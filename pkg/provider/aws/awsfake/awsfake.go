// Package awsfake is the wire of AWS with nothing behind it: an http.Handler that
// speaks the EC2 query protocol and keeps its machines in memory. It is strict, so
// that a test passes only with what AWS would take: it refuses parameters that it
// does not know, checks what the signature is for, counts calls against a bucket of
// tokens, and forgets no client token. It is for any client, and knows nothing of the
// provider that is tested with it.
//
// Machines have no goroutines. Each has a list of what it is from which moment on,
// written ahead; what it is at a time is looked up there. So reads that lag are
// reads of an earlier moment, and any clock will do.
package awsfake

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/retry"
)

// The defaults of a Config.
const (
	defaultRegion   = "us-east-1"
	defaultAccount  = "123456789012"
	defaultRemember = time.Hour // how long EC2 shows what was terminated
)

// Config describes a cloud. The zero Config is one without a subnet.
type Config struct {
	Region  string // what signatures are for; empty: us-east-1
	Account string // whose machines they are; empty: 123456789012

	Now  func() time.Time                                 // nil: time.Now
	Wait func(ctx context.Context, d time.Duration) error // for delays; nil: retry.Wait
	Seed uint64

	Boot     time.Duration // from pending to running
	Shutdown time.Duration // from shutting-down to terminated, and from stopping to stopped
	Remember time.Duration // how long a terminated machine is shown; 0: an hour

	// Lag makes reads eventual: each shows every machine as it was up to so long ago,
	// drawn anew for each, so that an answer may be older than the one before it. What
	// changes something knows the present.
	Lag time.Duration

	Subnets       []Subnet
	Images        []Image
	InstanceTypes []InstanceType

	InstanceLimit int // machines that run or will; 0: any number
	VCPULimit     int // what those have together; 0: any number

	Throttles []Throttle
	Logger    *slog.Logger // told of replies that could not be written; nil: nobody
}

// Cloud is one region of one account. It is safe for concurrent use.
type Cloud struct {
	cfg Config

	mu       sync.Mutex
	random   *rand.Rand
	buckets  []*bucket
	faults   map[string][]Fault
	calls    []Call
	machines []*machine // in the order of their launch
	byID     map[string]*machine
	byToken  map[string]*machine
	capacity map[pool]int
	doomed   []reason // what those that are accepted next end of
}

// New makes a cloud without machines.
func New(cfg Config) *Cloud {
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	if cfg.Account == "" {
		cfg.Account = defaultAccount
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Wait == nil {
		cfg.Wait = retry.Wait
	}
	if cfg.Remember == 0 {
		cfg.Remember = defaultRemember
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Cloud{
		cfg:      cfg,
		random:   rand.New(rand.NewPCG(cfg.Seed, 0)),
		faults:   map[string][]Fault{},
		byID:     map[string]*machine{},
		byToken:  map[string]*machine{},
		capacity: map[pool]int{},
	}
	c.Throttle(cfg.Throttles...)
	return c
}

// action is one thing that can be asked for.
type action struct {
	params  map[string]bool // the parameters it knows, with N for each index
	perform func(c *Cloud, p *params) (any, error)
}

func actions() map[string]action {
	return map[string]action{
		"RunInstances":          {known(runParams()), (*Cloud).runInstances},
		"DescribeInstances":     {known(describeParams("InstanceId.N")), (*Cloud).describeInstances},
		"TerminateInstances":    {known([]string{"InstanceId.N"}), (*Cloud).terminateInstances},
		"DescribeSubnets":       {known(describeParams("SubnetId.N")), (*Cloud).describeSubnets},
		"DescribeImages":        {known(describeParams("ImageId.N", "Owner.N")), (*Cloud).describeImages},
		"DescribeInstanceTypes": {known(describeParams("InstanceType.N")), (*Cloud).describeInstanceTypes},
	}
}

// ServeHTTP answers one call.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply, fault, err := c.answer(r)
	if fault.Delay > 0 && c.cfg.Wait(r.Context(), fault.Delay) != nil {
		return // nobody waits for the reply any more
	}
	if fault.Lost || fault.Dropped {
		hangUp(w)
		return
	}
	if err := c.write(w, reply, err); err != nil {
		c.cfg.Logger.LogAttrs(r.Context(), slog.LevelDebug, "reply not written", slog.Any("error", err))
	}
}

// answer decides what a call is answered, and what goes wrong with the answer.
func (c *Cloud) answer(r *http.Request) (reply any, strikes Fault, err error) {
	p, err := readForm(r)
	if err != nil {
		return nil, Fault{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.authenticate(r); err != nil {
		return nil, Fault{}, err
	}
	name := p.get("Action")
	a, ok := actions()[name]
	if !ok {
		return nil, Fault{}, bad("InvalidAction", "The action %.80s is not valid for this web service.", name)
	}
	strikes = c.strike(name)
	reply, err = c.perform(name, a, p, strikes)
	call := Call{Action: name, At: c.cfg.Now(), Token: p.get("ClientToken")}
	var refused *Error
	if errors.As(err, &refused) {
		call.Code = refused.Code
	}
	c.calls = append(c.calls, call)
	return reply, strikes, err
}

// perform does what is asked for, unless something speaks against it.
func (c *Cloud) perform(name string, a action, p *params, strikes Fault) (any, error) {
	if strikes.Code != "" {
		return nil, &Error{Code: strikes.Code, Message: strikes.Message, Status: strikes.Status}
	}
	if strikes.Dropped {
		return nil, nil
	}
	if err := c.throttle(name); err != nil {
		return nil, err
	}
	if err := p.only(a.params); err != nil {
		return nil, err
	}
	return a.perform(c, p)
}
