// Package awstest is an in-memory test double of AWS: an http.Handler that speaks the query
// protocol and JSON 1.1, and routes a request by the service that it is signed for. It is strict,
// so that a test passes only with requests that AWS would accept: it refuses unknown parameters,
// limits calls by token buckets, and remembers each client token. It has no knowledge of the client
// under test.
//
// Machines have no goroutines. Each has a timeline of transitions that is written ahead, and its
// state is looked up there by time. So a stale read is a read at an earlier time, and any clock can
// be used.
package awstest

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

	"github.com/nstance/nstance/pkg/provider/aws/awstest/policy"
	"github.com/nstance/nstance/pkg/retry"
)

// The defaults of a Config.
const (
	defaultRegion   = "us-east-1"
	defaultAccount  = "123456789012"
	defaultRemember = time.Hour // how long EC2 lists a terminated machine
	defaultRoleLife = 6 * time.Hour
)

// Config describes a cloud. The zero Config has no subnet.
type Config struct {
	Region  string // requests must be signed for it; empty: us-east-1
	Account string // the owner of the machines; empty: 123456789012

	Now  func() time.Time                                 // nil: time.Now
	Wait func(ctx context.Context, d time.Duration) error // waits for delays; nil: retry.Wait
	Seed uint64

	Boot     time.Duration // from pending to running
	Shutdown time.Duration // from shutting-down to terminated, and from stopping to stopped
	Remember time.Duration // how long a terminated machine is listed; 0: an hour
	Attach   time.Duration // of a network interface, from attaching to attached
	Detach   time.Duration // from detaching to available

	// Lag makes reads eventually consistent: each shows every machine as of a random time at most
	// Lag ago, so that a reply may be older than the one before. Calls that change something see
	// the present.
	Lag time.Duration

	Subnets       []Subnet
	Images        []Image
	InstanceTypes []InstanceType

	// Tags are those of the resources that launches use, by id: subnets, security groups,
	// snapshots.
	Tags map[string]map[string]string

	InstanceLimit int // running and pending machines; 0: any number
	VCPULimit     int // of all these machines together; 0: any number

	// Keys are secret keys by access key id. The signature of a request with one of them is
	// verified, that with another key is not. nil: AKIDEXAMPLE with secret.
	Keys map[string]string
	// KnownKeys refuses requests with other keys than Keys and the role's.
	KnownKeys bool

	Role     string        // the role whose credentials the metadata service returns; empty: none
	RoleLife time.Duration // lifetime of these credentials, which are renewed after half of it; 0: six hours

	TargetGroups []TargetGroup
	TargetLimit  int           // in one group; 0: any number
	Draining     time.Duration // how long a deregistered target is listed

	// Policies are those of all callers; none: everything is allowed.
	Policies []policy.Policy
	Profiles map[string]string // ARNs of roles, by the name or the ARN of the instance profile

	Throttles []Throttle
	Logger    *slog.Logger // logs replies that could not be written; nil: they are not logged
}

// Cloud is one region of one account: EC2 itself, and each other service in a field. It is safe for
// concurrent use.
type Cloud struct {
	Balancing  *Balancing
	Parameters *Parameters
	IAM        *IAM
	Scaling    *Scaling
	Secrets    *Secrets

	cfg Config

	mu          sync.Mutex
	random      *rand.Rand
	buckets     []*bucket
	faults      map[string][]Fault
	calls       []Call
	machines    []*machine // in the order of their launch
	byID        map[string]*machine
	byToken     map[string]*machine
	refused     map[string]string   // digests of launches refused for lack of capacity, by client token
	interfaces  []*networkInterface // in the order of their creation
	capacity    map[pool]int
	failedBoots []reason // why the next launches fail to boot
	roles       map[string]role
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
	c.IAM = &IAM{cloud: c, policies: cfg.Policies}
	c.Secrets, c.Parameters = &Secrets{cloud: c}, &Parameters{cloud: c}
	c.Throttle(cfg.Throttles...)
	return c
}

// action is one operation of a service.
type action struct {
	params  map[string]bool // its parameters, with N for each index
	perform func(c *Cloud, p *params) (any, error)
}

// ec2Actions are the operations of EC2.
func ec2Actions() map[string]action {
	return map[string]action{
		"RunInstances":          {parameterSet(runParams()), (*Cloud).runInstances},
		"DescribeInstances":     {parameterSet(describeParams("InstanceId.N")), (*Cloud).describeInstances},
		"TerminateInstances":    {parameterSet([]string{"InstanceId.N"}), (*Cloud).terminateInstances},
		"DescribeSubnets":       {parameterSet(describeParams("SubnetId.N")), (*Cloud).describeSubnets},
		"DescribeImages":        {parameterSet(describeParams("ImageId.N", "Owner.N")), (*Cloud).describeImages},
		"DescribeInstanceTypes": {parameterSet(describeParams("InstanceType.N")), (*Cloud).describeInstanceTypes},

		"DescribeNetworkInterfaces": {parameterSet(describeParams("NetworkInterfaceId.N")), describeNetworkInterfaces},
		"AttachNetworkInterface": {
			parameterSet([]string{"NetworkInterfaceId", "InstanceId", "DeviceIndex", "NetworkCardIndex"}), attachNetworkInterface,
		},
		"DetachNetworkInterface": {parameterSet([]string{"AttachmentId", "Force"}), detachNetworkInterface},
		"AssignPrivateIpAddresses": {
			parameterSet([]string{"NetworkInterfaceId", "PrivateIpAddress.N", "AllowReassignment"}), assignPrivateIPAddresses,
		},
		"UnassignPrivateIpAddresses": {parameterSet([]string{"NetworkInterfaceId", "PrivateIpAddress.N"}), unassignPrivateIPAddresses},
		"AssignIpv6Addresses":        {parameterSet([]string{"NetworkInterfaceId", "Ipv6Addresses.N"}), assignIPv6Addresses},
		"UnassignIpv6Addresses":      {parameterSet([]string{"NetworkInterfaceId", "Ipv6Addresses.N"}), unassignIPv6Addresses},
	}
}

// ServeHTTP answers one call.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := serviceOf(r)
	reply, fault, err := c.handle(s, r)
	if fault.Delay > 0 && c.cfg.Wait(r.Context(), fault.Delay) != nil {
		return // the client has gone
	}
	if fault.Lost || fault.Dropped {
		hangUp(w)
		return
	}
	if err := c.write(w, s, reply, err); err != nil {
		c.cfg.Logger.LogAttrs(r.Context(), slog.LevelDebug, "reply not written", slog.Any("error", err))
	}
}

// handle returns the reply of a call, and the fault that its delivery meets.
func (c *Cloud) handle(s service, r *http.Request) (reply any, fault Fault, err error) {
	var body bytes.Buffer
	r.Body = io.NopCloser(io.TeeReader(r.Body, &body)) // the signature is checked against it
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
	fault = c.nextFault(name)
	reply, err = c.perform(s, name, a, p, fault)
	call := Call{Service: s.name, Action: name, At: c.cfg.Now(), Token: cmp.Or(p.get("ClientToken"), p.get("ClientRequestToken"))}
	var refused *Error
	if errors.As(err, &refused) {
		call.Code = refused.Code
	}
	c.calls = append(c.calls, call)
	return reply, fault, err
}

// perform executes a call, unless it is throttled, malformed or not allowed.
func (c *Cloud) perform(s service, name string, a action, p *params, fault Fault) (any, error) {
	if fault.Code != "" {
		return nil, &Error{Code: fault.Code, Message: fault.Message, Status: fault.Status}
	}
	if fault.Dropped {
		return nil, nil
	}
	if err := c.throttle(s, name); err != nil {
		return nil, err
	}
	if err := p.rejectUnknown(a.params); err != nil {
		return nil, err
	}
	if err := c.IAM.authorize(s, name, p); err != nil {
		return nil, err
	}
	return a.perform(c, p)
}
