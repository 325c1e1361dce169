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

// mover is the common part of both leader networks. It is safe for concurrent use.
type mover struct {
	p *Provider
	l Leader

	mu sync.Mutex
	id string // this server's instance ID; empty: not known yet
}

// self returns this server's instance ID.
func (n *mover) self(ctx context.Context) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.id != "" {
		return n.id, nil
	}
	id, err := awsclient.InstanceID(ctx, n.l.Metadata)
	if err != nil {
		return "", fmt.Errorf("--self is not set: %w", err)
	}
	n.id = id
	return id, nil
}

// is returns a filter.
func is(name, value string) types.Filter { return types.Filter{Name: &name, Values: []string{value}} }

// interfaces returns the interfaces that match all filters.
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
		return nil, fmt.Errorf("%w: no primary network interface of instance %s found: set --self to this server's instance ID",
			provider.ErrNotFound, self)
	}
	return all, nil
}

// tag is a required tag of an interface.
type tag struct{ key, value string }

// mistagged describes a tag of the shard, or of more, that an interface lacks; empty if it has
// all.
func (n *mover) mistagged(i types.NetworkInterface, more ...tag) string {
	has := tagMap(i.TagSet)
	for _, want := range append(more, tag{provider.TagClusterID, n.p.cfg.Scope.ClusterID}, tag{provider.TagShard, n.p.cfg.Scope.Shard}) {
		if got := has[want.key]; got != want.value {
			return fmt.Sprintf("has the tag %s %.80q: want %q", want.key, got, want.value)
		}
	}
	return ""
}

// indexOf returns the device index of an attached interface.
func indexOf(i types.NetworkInterface) int32 {
	if i.Attachment == nil {
		return -1
	}
	return sdk.ToInt32(i.Attachment.DeviceIndex)
}

// addressesOf returns an interface's addresses, its primary one first.
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

// hasAll reports whether an interface has all leader addresses.
func (n *mover) hasAll(i types.NetworkInterface) bool {
	has := addressesOf(i)
	return !slices.ContainsFunc(n.l.addresses(), func(addr netip.Addr) bool { return !slices.Contains(has, addr) })
}

// local reports whether the system has all leader addresses.
func (n *mover) local(ctx context.Context) (bool, error) {
	for _, addr := range n.l.addresses() {
		if ok, err := n.l.Local(ctx, addr); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// localWait is how long the system may take to configure an address assigned by EC2.
const localWait = 15 * time.Second

// awaitLocal waits until the system has the addresses.
func (n *mover) awaitLocal(ctx context.Context) error {
	return pursue(ctx, localWait, func(ctx context.Context) (bool, error) {
		ok, err := n.local(ctx)
		if err == nil && !ok {
			err = fmt.Errorf("EC2 assigned %v to this instance, but its system does not use it: configure it as "+
				"docs/providers/aws.md#an-address-that-follows-the-leader says", n.l.addresses())
		}
		return ok, err
	})
}

// pollEvery is the polling interval.
const pollEvery = 500 * time.Millisecond

// stepWait is the timeout of one step, so that a hanging call is retried.
const stepWait = 10 * time.Second

// within runs one step with a timeout. late reports whether the timeout expired.
func within(ctx context.Context, step func(ctx context.Context) (bool, error)) (done, late bool, err error) {
	inner, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	done, err = step(inner)
	if late = err != nil && inner.Err() != nil && ctx.Err() == nil; late {
		err = unknown(fmt.Errorf("no answer within %v: %w", stepWait, err))
	}
	return done, late, err
}

// pursue repeats a step until it is done or fails permanently. After the limit it returns the
// last error; an unfinished step always has one.
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

// forbidden is an error of the guard, which ends the operation.
type forbidden struct{ error }

func (f forbidden) Unwrap() error { return f.error }

// hopeless reports whether retrying within seconds would fail too.
func hopeless(err error) bool {
	var f forbidden
	return errors.As(err, &f) || errors.Is(err, provider.ErrNotFound) || provider.Definite(err) && !errors.Is(err, provider.ErrThrottled)
}

// changed wraps a failed mutation in its kind. Errors with one of the codes may be resolved by
// the next read, as another server was faster or the read was stale, and get no kind.
func changed(action string, err error, codes ...string) error {
	if own, ok := awsclient.Refused(err); ok {
		return forbidden{own}
	}
	if code, _ := awsclient.Code(err); err != nil && slices.Contains(codes, code) {
		return unknown(sorted(action, err))
	}
	return sorted(action, err)
}
