// Package provider is the port to whatever makes machines: a cloud, a container
// engine, or the operating system. The server is the only component that talks
// to a provider, and this contract is all that it knows of one.
package provider

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// The kinds of failure, tested with errors.Is. An error that is none of them is
// temporary, and for a Create its outcome is unknown.
var (
	ErrNotFound     = errors.New("not found")          // no such VM
	ErrSubnetFull   = errors.New("subnet full")        // it has no free address: try another subnet; nothing was made
	ErrQuota        = errors.New("capacity used up")   // the account's or the zone's: no other subnet helps, back off; nothing was made
	ErrThrottled    = errors.New("throttled")          // back off; nothing was made
	ErrInvalid      = errors.New("invalid request")    // never retry as it is: surface; nothing was made
	ErrUnauthorized = errors.New("unauthorized")       // surface, back off; nothing was made
	ErrUnsupported  = errors.New("not supported here") // the provider can't do this at all

	// ErrUsed says that the attempt of a Create came before with another spec, and that no
	// VM of it can be seen yet: the outcome is unknown. Repeat the attempt.
	ErrUsed = errors.New("attempt came before")
	// ErrSpent says that the attempt came before with another spec, that no VM was made for
	// it, and that none will be: repeat the create with the next Spec.Attempt.
	ErrSpent = errors.New("attempt came before, and made nothing")
)

// Definite reports whether a failed Create certainly made nothing.
func Definite(err error) bool {
	return errors.Is(err, ErrSubnetFull) || errors.Is(err, ErrQuota) || errors.Is(err, ErrThrottled) ||
		errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrSpent)
}

// State is what the provider says of a VM.
type State string

// The states of a VM.
const (
	StatePending  State = "pending"  // accepted, not running yet
	StateRunning  State = "running"  // its operating system runs
	StateStopping State = "stopping" // on its way down, by whoever's hand
	StateStopped  State = "stopped"  // down, still there
	StateDeleting State = "deleting" // being removed
	StateDeleted  State = "deleted"  // gone, remembered for a while
	StateFailed   State = "failed"   // will never run
	StateUnknown  State = "unknown"  // the provider does not know
)

// Alive reports whether a VM in this state runs, will run, or may be running.
func (s State) Alive() bool {
	return s == StatePending || s == StateRunning || s == StateUnknown
}

// Exists reports whether there is still something to delete.
func (s State) Exists() bool { return s != StateDeleted }

// Tag keys. The first four identify a VM of ours and are what List filters by;
// the others inform people.
const (
	TagManaged    = "nstance:managed"
	TagClusterID  = "nstance:cluster-id"
	TagShard      = "nstance:shard"
	TagInstanceID = "nstance:instance-id"
	TagTenant     = "nstance:tenant"
	TagGroup      = "nstance:group"
	TagKind       = "nstance:kind"
)

// Scope is the cluster and shard a provider was opened for. A provider never
// lists, and never touches, a VM of another scope.
type Scope struct {
	ClusterID string
	Shard     string
}

// Tags returns the identifying and informing tags of one instance.
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

// Spec asks for one VM. Everything in it is rendered.
type Spec struct {
	ID           fleet.InstanceID // with Subnet and Attempt also the idempotency token
	Attempt      int              // how many attempts before this one certainly made nothing
	Hostname     string
	Arch         string // amd64 | arm64
	InstanceType string
	Subnet       string
	Args         map[string]any
	Userdata     []byte
	Tags         map[string]string
	Bootstrap    Bootstrap
}

// Bootstrap is what the agent needs for its first call. A cloud gets it inside
// the userdata; providers that place files themselves take it from here.
type Bootstrap struct {
	CACert            []byte // PEM
	Nonce             string // registration JWT
	RegistrationAddrs []string
	AgentAddrs        []string
	ReportInterval    time.Duration // how often the agent reports its health
}

// Ref names a VM. ProviderID may be empty when it is not known yet; then the
// instance id tag identifies it. When both are set and disagree it names
// nothing; with neither it is ErrInvalid.
type Ref struct {
	ID         fleet.InstanceID
	ProviderID string
}

// VM is one machine as the provider sees it.
type VM struct {
	ID         fleet.InstanceID // from the tag; empty when the tag is missing or malformed
	ProviderID string
	State      State
	Reason     string // why it is in its state, in the provider's words, for people; see Why
	Subnet     string
	Hostname   string
	Addresses  []netip.Addr
	Tags       map[string]string
	CreatedAt  time.Time
}

// Ref returns the reference that names vm exactly.
func (vm VM) Ref() Ref { return Ref{ID: vm.ID, ProviderID: vm.ProviderID} }

// Provider is what every implementation offers. Implementations are safe for
// concurrent use and honour ctx. They make no retry that could act twice, and
// call Guard (see WithGuard) before every request that changes something, SDK
// retries included.
type Provider interface {
	// Create makes one VM, once per Spec.ID however often it is called: when a
	// VM with this instance id exists already it is returned as it is, whatever
	// else the spec says now. On an error for which Definite holds this call made
	// nothing; on any other the outcome is unknown and the caller asks again with
	// the same Spec.ID, Spec.Subnet and Spec.Attempt.
	//
	// The caller raises Spec.Attempt when no create of this id before can have made
	// a VM, and only then: after a definite error of the first call of an attempt,
	// or ErrSpent. A cloud that refuses a token which comes back with other
	// parameters has seen an earlier call of the attempt. That one may have made the
	// VM, which is looked for and returned, or may have been refused: that is
	// ErrUsed until the search has taken long enough, and ErrSpent then.
	Create(ctx context.Context, spec Spec) (VM, error)

	// Get returns an Answer for each of refs, in their order. Its Err is
	// ErrNotFound when there is no such VM of this scope. A VM that was deleted
	// may be reported with StateDeleted for a while. Get and List may lag behind
	// changes, and show an older state than an earlier answer did, unless the
	// provider says otherwise (see ConsistentReads).
	//
	// Get and Delete take up to MaxBatch refs, in which one may occur twice; more
	// are ErrInvalid for each. One bad ref never fails the others: a provider
	// whose own batches fail as a whole for one bad id splits them, and one that
	// has no batches asks for each (GetEach, DeleteEach). What fails all the same
	// as a whole is the error of every ref.
	Get(ctx context.Context, refs []Ref) []Answer

	// List returns all VMs of this scope, by tags, ordered by instance id and
	// then provider id. A VM in StateDeleted may be left out. It may take its
	// time, and calls Listed after each page of its answer. It is never asked
	// for the state of VMs that somebody waits for: Get is.
	List(ctx context.Context) ([]VM, error)

	// Delete asks for the VMs' removal and returns once that was accepted, not
	// once it is done: the caller asks Get until ErrNotFound or StateDeleted. It
	// returns an error for each of refs, in their order. Deleting what is not
	// there succeeds. For batches see Get.
	Delete(ctx context.Context, refs []Ref) []error
}

// ConsistentReads is implemented by providers whose Get and List always show the
// present: what a call changed is shown from the moment it returned, and what has
// ended is never shown alive again. There one answer that a VM does not exist is
// believed; with any other provider it takes two, some time apart.
type ConsistentReads interface {
	// ConsistentReads reports whether this one's reads are so. The answer does not
	// change.
	ConsistentReads() bool
}

// Consistent reports whether a provider says that its reads are consistent. One
// that says nothing is taken for one whose reads lag.
func Consistent(p Provider) bool {
	c, ok := p.(ConsistentReads)
	return ok && c.ConsistentReads()
}

// Event tells that a VM changed, as far as the provider saw it.
type Event struct {
	VM VM
}

// Watcher is implemented by providers that can tell of changes as they happen.
type Watcher interface {
	// Watch calls fn for every change of a VM of this scope, one at a time,
	// until ctx ends or the stream breaks; the caller calls again, and lists,
	// since changes in between were missed.
	Watch(ctx context.Context, fn func(Event)) error
}

// LeaderNetwork is implemented by providers that can move a fixed address to
// the server that leads. Nobody releases it: a late release could knock off the
// next leader.
type LeaderNetwork interface {
	// Assign takes the address by force. Idempotent.
	Assign(ctx context.Context) error
	// Check reports whether this host holds the address.
	Check(ctx context.Context) (bool, error)
}

// SubnetCapacity is implemented by providers that know how many more VMs a
// subnet has addresses for.
type SubnetCapacity interface {
	// FreeAddresses returns the free addresses of each of the given subnets. One
	// that does not exist is missing from the answer. The numbers are a hint: a
	// Create may find the subnet full all the same, and says ErrSubnetFull.
	FreeAddresses(ctx context.Context, subnets []string) (map[string]int, error)
}

// ImageQuery describes a machine image by its properties.
type ImageQuery struct {
	Owners  []string
	Filters []ImageFilter
	Sort    string // creation-date | name
	Order   string // asc | desc
}

// ImageFilter keeps the images whose property Name has one of the values, in
// which * stands for any characters.
type ImageFilter struct {
	Name   string
	Values []string
}

// ImageResolver is implemented by providers that start VMs from images.
type ImageResolver interface {
	// ResolveImage returns the id of the first image by the query's order, or
	// ErrNotFound when none matches. Images that can't be started yet, or any
	// more, don't match. Names of filters are the provider's own; one that it does
	// not know is ErrInvalid.
	ResolveImage(ctx context.Context, q ImageQuery) (string, error)
}

// LoadBalancer is implemented by providers that can send traffic to VMs. target
// is one of the provider's own names, such as the ARN of a target group; one
// that does not exist is ErrNotFound. The caller always knows vm.ProviderID.
type LoadBalancer interface {
	// Register adds the VM. Idempotent. A VM of another scope, and one that does
	// not run, is ErrInvalid.
	Register(ctx context.Context, target string, vm Ref) error
	// Deregister removes the VM, and succeeds when it is not registered, or is
	// not there at all. No new traffic begins once it has returned; what is under
	// way may go on.
	Deregister(ctx context.Context, target string, vm Ref) error
	// Targets returns the provider ids of the VMs that are registered, sorted,
	// those that are being deregistered left out. VMs of other scopes, and what
	// people registered by hand, are among them: a target may be shared.
	Targets(ctx context.Context, target string) ([]string, error)
}

type listingKey struct{}

// WithListing returns a context under which a List calls page after each page of
// its answer that came, so that a slow one can be told from one that hangs. The
// last page may be left out: List's return says that it came.
func WithListing(ctx context.Context, page func()) context.Context {
	return context.WithValue(ctx, listingKey{}, page)
}

// Listed says that a page of a List's answer came.
func Listed(ctx context.Context) {
	if page, ok := ctx.Value(listingKey{}).(func()); ok {
		page()
	}
}

type guardKey struct{}

// Guard says whether a mutation may start now; an error forbids it.
type Guard func(ctx context.Context) error

// WithGuard returns a context under which mutations ask g before they start.
// The server puts the leader's fence here, so that even the third retry deep
// inside an SDK can't start after leadership was lost.
func WithGuard(ctx context.Context, g Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, g)
}

// Permit asks the context's guard, if there is one.
func Permit(ctx context.Context) error {
	if g, ok := ctx.Value(guardKey{}).(Guard); ok {
		return g(ctx)
	}
	return nil
}
