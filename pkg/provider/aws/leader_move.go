package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/retry"
)

// mover is what both ways to move an address share. It is safe for concurrent use.
type mover struct {
	p *Provider
	l Leader

	mu sync.Mutex
	id string // of this server's instance; empty: not known yet
}

// self returns the instance that this server runs on.
func (n *mover) self(ctx context.Context) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.id != "" {
		return n.id, nil
	}
	id, err := awsclient.InstanceID(ctx, n.l.Metadata)
	if err != nil {
		return "", fmt.Errorf("--self does not say it: %w", err)
	}
	n.id = id
	return id, nil
}

// is is a filter of reads.
func is(name, value string) types.Filter { return types.Filter{Name: &name, Values: []string{value}} }

// interfaces returns those that match all filters.
func (n *mover) interfaces(ctx context.Context, filters ...types.Filter) ([]types.NetworkInterface, error) {
	in := &ec2.DescribeNetworkInterfacesInput{Filters: filters}
	var all []types.NetworkInterface
	err := pages(&in.NextToken, func() (*string, error) {
		out, err := n.p.api.describeInterfaces(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("describe network interfaces: %w", sorted("ec2:DescribeNetworkInterfaces", err))
		}
		all = append(all, out.NetworkInterfaces...)
		return out.NextToken, nil
	})
	return all, err
}

// own returns this instance's interfaces, the primary one first.
func (n *mover) own(ctx context.Context) ([]types.NetworkInterface, error) {
	self, err := n.self(ctx)
	if err != nil {
		return nil, err
	}
	all, err := n.interfaces(ctx, is("attachment.instance-id", self))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b types.NetworkInterface) int { return cmp.Compare(indexOf(a), indexOf(b)) })
	if len(all) == 0 || indexOf(all[0]) != 0 {
		return nil, fmt.Errorf("%w: no primary network interface of instance %s can be seen: name this server's instance with --self",
			provider.ErrNotFound, self)
	}
	return all, nil
}

// tag is one that an interface has to have.
type tag struct{ key, value string }

// mistagged says what of the shard's tags, and of more, an interface has not; empty: it
// has all.
func (n *mover) mistagged(i types.NetworkInterface, more ...tag) string {
	has := tagMap(i.TagSet)
	for _, want := range append(more, tag{provider.TagClusterID, n.p.cfg.Scope.ClusterID}, tag{provider.TagShard, n.p.cfg.Scope.Shard}) {
		if got := has[want.key]; got != want.value {
			return fmt.Sprintf("has the tag %s %.80q: want %q", want.key, got, want.value)
		}
	}
	return ""
}

// indexOf is the device index of an interface that is attached.
func indexOf(i types.NetworkInterface) int32 {
	if i.Attachment == nil {
		return -1
	}
	return sdk.ToInt32(i.Attachment.DeviceIndex)
}

// addressesOf are those of an interface, its primary one first.
func addressesOf(i types.NetworkInterface) (out []netip.Addr) {
	texts := []*string{i.PrivateIpAddress}
	for _, one := range i.PrivateIpAddresses {
		texts = append(texts, one.PrivateIpAddress)
	}
	for _, one := range i.Ipv6Addresses {
		texts = append(texts, one.Ipv6Address)
	}
	for _, text := range texts {
		if addr, err := netip.ParseAddr(sdk.ToString(text)); err == nil && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// hasAll reports whether an interface has all addresses that move.
func (n *mover) hasAll(i types.NetworkInterface) bool {
	has := addressesOf(i)
	return !slices.ContainsFunc(n.l.addresses(), func(addr netip.Addr) bool { return !slices.Contains(has, addr) })
}

// local reports whether the system has all addresses that move.
func (n *mover) local(ctx context.Context) (bool, error) {
	for _, addr := range n.l.addresses() {
		if ok, err := n.l.Local(ctx, addr); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// localWait is how long the system has to take an address that EC2 has given to it.
const localWait = 15 * time.Second

// awaitLocal waits until the system has the addresses.
func (n *mover) awaitLocal(ctx context.Context) error {
	return pursue(ctx, localWait, func(ctx context.Context) (bool, error) {
		ok, err := n.local(ctx)
		if err == nil && !ok {
			err = fmt.Errorf("EC2 has given %v to this instance, but its system does not use it: configure it as "+
				"docs/providers/aws.md#an-address-that-follows-the-leader says", n.l.addresses())
		}
		return ok, err
	})
}

// pollEvery is how often is asked whether something has been done.
const pollEvery = 500 * time.Millisecond

// stepWait is how long one look, or one step, may take: a call that hangs is given up,
// for the next one may not.
const stepWait = 10 * time.Second

// within runs one step. late reports whether it ran out of its own time, whatever its
// error says of it.
func within(ctx context.Context, step func(ctx context.Context) (bool, error)) (done, late bool, err error) {
	inner, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	done, err = step(inner)
	if late = err != nil && inner.Err() != nil && ctx.Err() == nil; late {
		err = unknown(fmt.Errorf("no answer within %v: %w", stepWait, err))
	}
	return done, late, err
}

// pursue repeats a step until it is done, as long as what it fails of may pass. After the
// limit it returns the last failure; a step that is not done has one.
func pursue(ctx context.Context, limit time.Duration, step func(ctx context.Context) (done bool, err error)) error {
	for end := time.Now().Add(limit); ; {
		done, late, err := within(ctx, step)
		switch {
		case done, err != nil && !late && hopeless(err):
			return err
		case !time.Now().Before(end):
			return fmt.Errorf("not done after %v: %w", limit, err)
		}
		if waited := retry.Wait(ctx, pollEvery); waited != nil {
			return fmt.Errorf("%w: %w", waited, err)
		}
	}
}

// forbidden is the guard's own error: it ends what it was asked for.
type forbidden struct{ error }

func (f forbidden) Unwrap() error { return f.error }

// hopeless reports whether trying again within seconds would fail as well.
func hopeless(err error) bool {
	var f forbidden
	return errors.As(err, &f) || errors.Is(err, provider.ErrNotFound) || provider.Definite(err) && !errors.Is(err, provider.ErrThrottled)
}

// changed gives a failed change its kind. What codes stand for may be over with the next
// read, and is no kind then: somebody else was faster, or the read was of a moment before.
func changed(action string, err error, codes ...string) error {
	if own, ok := awsclient.Refused(err); ok {
		return forbidden{own}
	}
	if code, _ := awsclient.Code(err); err != nil && slices.Contains(codes, code) {
		return unknown(sorted(action, err))
	}
	return sorted(action, err)
}
