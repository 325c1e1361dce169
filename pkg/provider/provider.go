// Package provider defines the interface to infrastructure that runs VMs: a cloud, a container
// engine, or the operating system. Only the server talks to providers, and only through this
// interface.
package provider

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// Kinds of errors, for errors.Is. Any other error is temporary, and leaves the outcome of a
// Create unknown.
var (
	ErrNotFound     = errors.New("not found")          // no such VM
	ErrSubnetFull   = errors.New("subnet full")        // no free address: try another subnet; nothing was made
	ErrQuota        = errors.New("capacity used up")   // of the account or zone: no other subnet helps, back off; nothing was made
	ErrThrottled    = errors.New("throttled")          // back off; nothing was made
	ErrInvalid      = errors.New("invalid request")    // don't retry unchanged, report it; nothing was made
	ErrUnauthorized = errors.New("unauthorized")       // report it, back off; nothing was made
	ErrUnsupported  = errors.New("not supported here") // the provider never supports this

	// ErrUsed means that the attempt was used before with another spec, and that no VM of it is
	// visible yet: the outcome is unknown. Repeat the attempt.
	ErrUsed = errors.New("attempt came before")
	// ErrSpent means that the attempt was used before with another spec and made no VM, nor
	// will it: repeat the create with the next Spec.Attempt.
	ErrSpent = errors.New("attempt came before, and made nothing")
)

// Definite reports whether a failed Create definitely made nothing.
func Definite(err error) bool {
	return errors.Is(err, ErrSubnetFull) || errors.Is(err, ErrQuota) || errors.Is(err, ErrThrottled) ||
		errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrSpent)
}

// State is a VM's state at the provider.
type State string

// States of a VM.
const (
	StatePending  State = "pending"  // accepted, not running yet
	StateRunning  State = "running"  // its operating system runs
	StateStopping State = "stopping" // shutting down, whatever the cause
	StateStopped  State = "stopped"  // stopped, still exists
	StateDeleting State = "deleting" // being removed
	StateDeleted  State = "deleted"  // gone, reported for a while
	StateFailed   State = "failed"   // will never run
	StateUnknown  State = "unknown"  // not known to the provider
)

// Alive reports whether a VM in this state runs, will run, or may be running.
func (s State) Alive() bool {
	return s == StatePending || s == StateRunning || s == StateUnknown
}

// Exists reports whether a VM in this state can be deleted.
func (s State) Exists() bool { return s != StateDeleted }

// rank orders states: alive, other existing ones, gone.
func (s State) rank() int {
	switch {
	case s.Alive():
		return 0
	case s.Exists():
		return 1
	default:
		return 2
	}
}

// Tag keys. The first four identify a VM and are what List filters by; the others are
// informational.
const (
	TagManaged    = "nstance:managed"
	TagClusterID  = "nstance:cluster-id"
	TagShard      = "nstance:shard"
	TagInstanceID = "nstance:instance-id"
	TagTenant     = "nstance:tenant"
	TagGroup      = "nstance:group"
	TagKind       = "nstance:kind"
)

// Scope is the cluster and shard a provider was opened for. A provider never lists or modifies
// VMs of other scopes.
type Scope struct {
	ClusterID string
	Shard     string
}

// Tags returns the tags of an instance.
func (s Scope) Tags(i fleet.Instance) map[string]string {
	return map[string]string{
		TagManaged:    "true",
		TagClusterID:  s.ClusterID,
		TagShard:      s.Shard,
		TagInstanceID: string(i.ID),
		TagTenant:     i.Tenant,
		TagGroup:      i.Group,
		TagKind:       i.ID.Kind(),
	}
}

// Spec is the request for one VM. All its fields are rendered.
type Spec struct {
	ID           fleet.InstanceID // with Subnet and Attempt also the idempotency token
	Attempt      int              // number of earlier attempts that definitely made nothing
	Hostname     string
	Arch         string // amd64 | arm64
	InstanceType string
	Subnet       string
	Args         map[string]any
	Userdata     []byte
	Tags         map[string]string
	Bootstrap    Bootstrap
}

// Bootstrap is what the agent needs for its first call. Clouds get it within the userdata;
// providers that write the files themselves use it directly.
type Bootstrap struct {
	CACert            []byte // PEM
	Nonce             string // registration JWT
	RegistrationAddrs []string
	AgentAddrs        []string
	ReportInterval    time.Duration // how often the agent reports its health
}

// Ref identifies a VM. If ProviderID is empty, the instance ID tag identifies it. If both are
// set and disagree, it matches nothing; if neither is set it is ErrInvalid.
type Ref struct {
	ID         fleet.InstanceID
	ProviderID string
}

// RefOf returns the reference to an instance's VM by its record.
func RefOf(i fleet.Instance) Ref { return Ref{ID: i.ID, ProviderID: i.Provider.ID} }

// VM is a VM as the provider reports it.
type VM struct {
	ID         fleet.InstanceID // from the tag; empty if the tag is missing or malformed
	ProviderID string
	State      State
	Reason     string // why it is in this state, in the provider's words; see Why
	Subnet     string
	Hostname   string       // the hostname in Spec
	DNSNames   []string     // names in the provider's name service, lowercase; none without such a service
	Addresses  []netip.Addr // assigned by the provider; never what the machine claims
	Tags       map[string]string
	CreatedAt  time.Time
}

// Ref returns the exact reference of vm.
func (vm VM) Ref() Ref { return Ref{ID: vm.ID, ProviderID: vm.ProviderID} }

// Provider is the interface that every provider implements. Implementations are safe for
// concurrent use and honour ctx. They never retry a call that could take effect twice, and call
// Guard (see WithGuard) before every request that changes something, including SDK retries.
type Provider interface {
	// Create makes one VM per Spec.ID, however often it is called: if a VM with this instance
	// ID exists, it is returned unchanged, whatever the spec says now. On an error that is
	// Definite, this call made nothing; on any other, the outcome is unknown and the caller
	// retries with the same Spec.ID, Spec.Subnet and Spec.Attempt.
	//
	// The caller increments Spec.Attempt only if no earlier create of this ID can have made a
	// VM: after a Definite error of an attempt's first call, or after ErrSpent. If a cloud
	// refuses a token that was used with other parameters, an earlier call of the attempt
	// either made the VM, which is then searched for and returned, or was refused: that is
	// ErrUsed until the search has taken long enough, then ErrSpent.
	Create(ctx context.Context, spec Spec) (VM, error)

	// Get returns an Answer for each of refs, in order. Err is ErrNotFound if there is no such
	// VM in this scope. A deleted VM may be reported with StateDeleted for a while. Get and
	// List may return stale data, also older than an earlier answer, unless the provider has
	// ConsistentReads.
	//
	// Get and Delete accept up to MaxBatch refs, with duplicates; with more, each is
	// ErrInvalid. One bad ref never fails the others: a provider whose batch calls fail as a
	// whole for one bad ID splits them, and one without batches calls each (GetEach,
	// DeleteEach). An error of the call as a whole is returned for every ref.
	Get(ctx context.Context, refs []Ref) []Answer

	// List returns all VMs of this scope, by tags, ordered by instance ID and then provider
	// ID. VMs in StateDeleted may be omitted. It may be slow, and calls Listed after each
	// page. Callers that wait for a VM's state use Get, not List.
	List(ctx context.Context) ([]VM, error)

	// Delete requests the VMs' deletion and returns once that is accepted, not completed: the
	// caller polls Get until ErrNotFound or StateDeleted. It returns an error for each of refs,
	// in order. Deleting a missing VM succeeds. For batches see Get.
	Delete(ctx context.Context, refs []Ref) []error
}

// ConsistentReads is implemented by providers whose Get and List are never stale: they show a
// change as soon as its call returned, and never show an ended VM as alive. For them a single
// answer that a VM does not exist is conclusive; other providers need two, some time apart.
type ConsistentReads interface {
	// ConsistentReads reports whether reads are consistent. The answer never changes.
	ConsistentReads() bool
}

// Consistent reports whether a provider's reads are consistent; false if it does not implement
// ConsistentReads.
func Consistent(p Provider) bool {
	c, ok := p.(ConsistentReads)
	return ok && c.ConsistentReads()
}

// Event is a change of a VM, as seen by the provider.
type Event struct {
	VM VM
}

// Watcher is implemented by providers that report changes as they happen.
type Watcher interface {
	// Watch calls fn for every change of a VM of this scope, never concurrently, until ctx ends
	// or the stream breaks. The caller then watches again and lists, since changes in between
	// were missed.
	Watch(ctx context.Context, fn func(Event)) error
}

// LeaderNetwork is implemented by providers that can move a fixed address to the leader's
// server. It has no release: a late one could take the address from the next leader.
type LeaderNetwork interface {
	// Assign moves the address here, by force. Idempotent.
	Assign(ctx context.Context) error
	// Check reports whether this host holds the address.
	Check(ctx context.Context) (bool, error)
}

// SubnetCapacity is implemented by providers that know the free addresses of subnets.
type SubnetCapacity interface {
	// FreeAddresses returns the number of free addresses of each subnet. Missing subnets are
	// omitted. The numbers are hints: a Create may still find the subnet full and return
	// ErrSubnetFull.
	FreeAddresses(ctx context.Context, subnets []string) (map[string]int, error)
}

// ImageQuery describes a machine image by its properties.
type ImageQuery struct {
	Owners  []string
	Filters []ImageFilter
	Sort    string // creation-date | name
	Order   string // asc | desc
}

// ImageFilter keeps the images whose property Name has one of the values; * matches any
// characters.
type ImageFilter struct {
	Name   string
	Values []string
}

// ImageResolver is implemented by providers that start VMs from images.
type ImageResolver interface {
	// ResolveImage returns the ID of the first matching image in the query's order, or
	// ErrNotFound. Images that can't be started don't match. Filter names are the provider's
	// own; unknown ones are ErrInvalid.
	ResolveImage(ctx context.Context, q ImageQuery) (string, error)
}

// LoadBalancer is implemented by providers that can send traffic to VMs. target is a name of
// the provider, such as the ARN of a target group; ErrNotFound if it does not exist.
// vm.ProviderID is always set.
type LoadBalancer interface {
	// Register adds the VM. Idempotent. It returns ErrInvalid for a VM that is not running or
	// is of another scope.
	Register(ctx context.Context, target string, vm Ref) error
	// Deregister removes the VM. It succeeds if the VM is not registered or does not exist. No
	// new connections are sent to it once it has returned; existing ones may continue.
	Deregister(ctx context.Context, target string, vm Ref) error
	// Targets returns the sorted provider IDs of the registered VMs, without those being
	// deregistered. They include VMs of other scopes and manual registrations, as targets may
	// be shared.
	Targets(ctx context.Context, target string) ([]string, error)
}

type listingKey struct{}

// WithListing returns a context under which List calls page after each page of its answer, so
// that a slow list can be told from a hanging one. The last page may be omitted: List's return
// covers it.
func WithListing(ctx context.Context, page func()) context.Context {
	return context.WithValue(ctx, listingKey{}, page)
}

// Listed reports a page of a List's answer.
func Listed(ctx context.Context) {
	if page, ok := ctx.Value(listingKey{}).(func()); ok {
		page()
	}
}

type guardKey struct{}

// Guard returns an error if a mutation must not start now.
type Guard func(ctx context.Context) error

// WithGuard returns a context under which g is called before each mutation. The server sets the
// leader's fence here, so that not even a retry within an SDK can start after leadership was
// lost.
func WithGuard(ctx context.Context, g Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// Permit calls the context's guard, if there is one.
func Permit(ctx context.Context) error {
	if g, ok := ctx.Value(guardKey{}).(Guard); ok {
		return g(ctx)
	}
	return nil
}
