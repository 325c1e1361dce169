// Package awsfake is the wire of AWS with nothing behind it: an http.Handler that
// speaks the query protocol and JSON 1.1, tells services apart by what a signature is
// for, and keeps all it knows in memory. It is strict, so that a test passes only with
// what AWS would take: it refuses parameters that it does not know, counts calls
// against a bucket of tokens, and forgets no client token. It is for any client, and
// knows nothing of what is tested with it.
//
// Machines have no goroutines. Each has a list of what it is from which moment on,
// written ahead; what it is at a time is looked up there. So reads that lag are
// reads of an earlier moment, and any clock will do.
package awsfake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awsfake/policy"
	"github.com/nstance/nstance/pkg/retry"
)

// The defaults of a Config.
const (
	defaultRegion   = "us-east-1"
	defaultAccount  = "123456789012"
	defaultRemember = time.Hour // how long EC2 shows what was terminated
	defaultRoleLife = 6 * time.Hour
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
	Attach   time.Duration // of a network interface, from attaching to attached
	Detach   time.Duration // from detaching to available

	// Lag makes reads eventual: each shows every machine as it was up to so long ago,
	// drawn anew for each, so that an answer may be older than the one before it. What
	// changes something knows the present.
	Lag time.Duration

	Subnets       []Subnet
	Images        []Image
	InstanceTypes []InstanceType

	InstanceLimit int // machines that run or will; 0: any number
	VCPULimit     int // what those have together; 0: any number

	// Keys are secret keys, by the id of the access key: what is signed with one of them has
	// to be signed right, and with others may be anyhow. nil: secret, of AKIDEXAMPLE.
	Keys map[string]string

	Role     string        // that the metadata service has keys of; empty: none
	RoleLife time.Duration // of keys, which are new ones at half of it; 0: six hours

	TargetGroups []TargetGroup
	TargetLimit  int           // in one group; 0: any number
	Draining     time.Duration // how long a target is shown after it was deregistered

	// Policies are those of whoever calls; none: everything is allowed.
	Policies []policy.Policy
	Profiles map[string]string // ARNs of roles, by the name or the ARN of an instance profile

	Throttles []Throttle
	Logger    *slog.Logger // told of replies that could not be written; nil: nobody
}

// Cloud is one region of one account: EC2, and what has a field of its own. It is safe for concurrent use.
type Cloud struct {
	Balancing  *Balancing
	Parameters *Parameters
	Rights     *Rights
	Scaling    *Scaling
	Secrets    *Secrets

	cfg Config

	mu       sync.Mutex
	random   *rand.Rand
	buckets  []*bucket
	faults   map[string][]Fault
	calls    []Call
	machines []*machine // in the order of their launch
	byID     map[string]*machine
	byToken  map[string]*machine
	refused  map[string]string // the launch that was refused for lack of room, by its client token
	cards    []*card           // in the order in which they came
	capacity map[pool]int
	doomed   []reason // what those that are accepted next end of
	roles    map[string]role
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
	if cfg.Keys == nil {
		cfg.Keys = map[string]string{"AKIDEXAMPLE": "secret"}
	}
	if cfg.RoleLife == 0 {
		cfg.RoleLife = defaultRoleLife
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
		refused:  map[string]string{},
		capacity: map[pool]int{},
		roles:    map[string]role{},
	}
	c.Balancing = &Balancing{cloud: c, groups: cfg.TargetGroups, targets: map[string][]*target{}}
	c.Scaling = &Scaling{cloud: c, members: map[string]*Member{}, tags: map[string]map[string]string{}}
	c.Rights = &Rights{cloud: c, policies: cfg.Policies}
	c.Secrets, c.Parameters = &Secrets{cloud: c}, &Parameters{cloud: c}
	c.Throttle(cfg.Throttles...)
	return c
}

// action is one thing that can be asked for.
type action struct {
	params  map[string]bool // the parameters it knows, with N for each index
	perform func(c *Cloud, p *params) (any, error)
}

// actions are those of EC2.
func actions() map[string]action {
	return map[string]action{
		"RunInstances":          {known(runParams()), (*Cloud).runInstances},
		"DescribeInstances":     {known(describeParams("InstanceId.N")), (*Cloud).describeInstances},
		"TerminateInstances":    {known([]string{"InstanceId.N"}), (*Cloud).terminateInstances},
		"DescribeSubnets":       {known(describeParams("SubnetId.N")), (*Cloud).describeSubnets},
		"DescribeImages":        {known(describeParams("ImageId.N", "Owner.N")), (*Cloud).describeImages},
		"DescribeInstanceTypes": {known(describeParams("InstanceType.N")), (*Cloud).describeInstanceTypes},

		"DescribeNetworkInterfaces": {known(describeParams("NetworkInterfaceId.N")), describeNetworkInterfaces},
		"AttachNetworkInterface": {
			known([]string{"NetworkInterfaceId", "InstanceId", "DeviceIndex", "NetworkCardIndex"}), attachNetworkInterface,
		},
		"DetachNetworkInterface": {known([]string{"AttachmentId", "Force"}), detachNetworkInterface},
		"AssignPrivateIpAddresses": {
			known([]string{"NetworkInterfaceId", "PrivateIpAddress.N", "AllowReassignment"}), assignPrivateIPAddresses,
		},
		"UnassignPrivateIpAddresses": {known([]string{"NetworkInterfaceId", "PrivateIpAddress.N"}), unassignPrivateIPAddresses},
		"AssignIpv6Addresses":        {known([]string{"NetworkInterfaceId", "Ipv6Addresses.N"}), assignIPv6Addresses},
		"UnassignIpv6Addresses":      {known([]string{"NetworkInterfaceId", "Ipv6Addresses.N"}), unassignIPv6Addresses},
	}
}

// ServeHTTP answers one call.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := serviceOf(r)
	reply, fault, err := c.answer(s, r)
	if fault.Delay > 0 && c.cfg.Wait(r.Context(), fault.Delay) != nil {
		return // nobody waits for the reply any more
	}
	if fault.Lost || fault.Dropped {
		hangUp(w)
		return
	}
	if err := c.write(w, s, reply, err); err != nil {
		c.cfg.Logger.LogAttrs(r.Context(), slog.LevelDebug, "reply not written", slog.Any("error", err))
	}
}

// answer decides what a call is answered, and what goes wrong with the answer.
func (c *Cloud) answer(s service, r *http.Request) (reply any, strikes Fault, err error) {
	var body bytes.Buffer
	r.Body = io.NopCloser(io.TeeReader(r.Body, &body)) // for the signature
	name, p, err := s.read(s, r)
	if err != nil {
		return nil, Fault{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.authenticate(s, r, body.Bytes()); err != nil {
		return nil, Fault{}, err
	}
	a, ok := s.actions[name]
	if !ok {
		return nil, Fault{}, bad(s.unknown, "The action %.80s is not valid for this web service.", name)
	}
	strikes = c.strike(name)
	reply, err = c.perform(s, name, a, p, strikes)
	call := Call{Service: s.name, Action: name, At: c.cfg.Now(), Token: cmp.Or(p.get("ClientToken"), p.get("ClientRequestToken"))}
	var refused *Error
	if errors.As(err, &refused) {
		call.Code = refused.Code
	}
	c.calls = append(c.calls, call)
	return reply, strikes, err
}

// perform does what is asked for, unless something speaks against it.
func (c *Cloud) perform(s service, name string, a action, p *params, strikes Fault) (any, error) {
	if strikes.Code != "" {
		return nil, &Error{Code: strikes.Code, Message: strikes.Message, Status: strikes.Status}
	}
	if strikes.Dropped {
		return nil, nil
	}
	if err := c.throttle(s, name); err != nil {
		return nil, err
	}
	if err := p.only(a.params); err != nil {
		return nil, err
	}
	if err := c.Rights.check(s, name, p); err != nil {
		return nil, err
	}
	return a.perform(c, p)
}
