package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// leaderAddress moves only the leader's address, as a secondary address of the servers' primary
// interfaces. For IPv4 that is a single call, which takes it from the interface that has it.
// EC2 does not reassign IPv6 addresses: those are first unassigned from the interface they were
// seen on, which fails if it no longer has them.
//
// Every server's system has the address configured, and EC2's reads are stale at times: an
// address counts as assigned here once the metadata service confirms it.
type leaderAddress struct{ *mover }

var _ provider.LeaderNetwork = (*leaderAddress)(nil)

const (
	reassignWait  = 30 * time.Second // for the whole move
	reassignAgain = 5 * time.Second  // before an accepted call is repeated
)

// Check implements provider.LeaderNetwork.
func (n *leaderAddress) Check(ctx context.Context) (bool, error) {
	held, _, err := within(ctx, n.check)
	return held, err
}

// check checks once whether this server has the addresses.
func (n *leaderAddress) check(ctx context.Context) (held bool, err error) {
	own, err := n.own(ctx)
	if err != nil || !n.hasAll(own[0]) {
		return false, err
	}
	if err := n.movable(own[0]); err != nil {
		return false, err
	}
	if missing, err := n.missing(ctx, own[0]); err != nil || len(missing) > 0 {
		return false, err
	}
	return n.local(ctx)
}

// missing returns the addresses that this instance's primary interface does not have according
// to both EC2 and the metadata service. EC2's read may predate another server's takeover, and
// the metadata service lags behind assignments. On an error it returns those missing at EC2.
func (n *leaderAddress) missing(ctx context.Context, own types.NetworkInterface) ([]netip.Addr, error) {
	read := addressesOf(own)
	told, err := awsclient.Addresses(ctx, n.l.Metadata, sdk.ToString(own.MacAddress))
	return slices.DeleteFunc(n.l.addresses(), func(addr netip.Addr) bool {
		return slices.Contains(read, addr) && (err != nil || slices.Contains(told, addr))
	}), err
}

// Assign implements provider.LeaderNetwork.
func (n *leaderAddress) Assign(ctx context.Context) error {
	r := &reassignment{n: n, at: map[netip.Addr]time.Time{}}
	err := pursue(ctx, reassignWait, r.step)
	if err != nil {
		return fmt.Errorf("move %v to this instance: %w", n.l.addresses(), err)
	}
	return n.awaitLocal(ctx)
}

// movable refuses an address that EC2 can't move.
func (n *leaderAddress) movable(i types.NetworkInterface) error {
	if n.l.IPv4.IsValid() && sdk.ToString(i.PrivateIpAddress) == n.l.IPv4.String() {
		return fmt.Errorf("%w: leader_network.ipv4: %s is the primary address of network interface %s, which can't be moved: "+
			"want an address that is not the primary one of an interface", provider.ErrInvalid, n.l.IPv4, sdk.ToString(i.NetworkInterfaceId))
	}
	return nil
}

// reassignment is the state of moving the addresses to this instance.
type reassignment struct {
	n  *leaderAddress
	at map[netip.Addr]time.Time // when EC2 accepted the call
}

// step assigns the addresses that this instance does not have at EC2.
func (r *reassignment) step(ctx context.Context) (done bool, err error) {
	own, err := r.n.own(ctx)
	if err != nil {
		return false, err
	}
	if err := r.n.movable(own[0]); err != nil {
		return false, err
	}
	missing, unasked := r.n.missing(ctx, own[0])
	if unasked == nil && len(missing) == 0 {
		return true, nil
	}
	for _, addr := range missing {
		if at, ordered := r.at[addr]; ordered && time.Since(at) < reassignAgain {
			continue // not visible yet
		}
		order := r.n.reassign
		if addr.Is6() {
			order = r.n.reassignIPv6
		}
		if err := order(ctx, own[0]); err != nil {
			return false, err
		}
		r.at[addr] = time.Now()
	}
	if unasked != nil {
		return false, unasked // unknown whether the address is here
	}
	return false, fmt.Errorf("EC2 and the metadata service do not both show %v on network interface %s",
		missing, sdk.ToString(own[0].NetworkInterfaceId))
}

// others returns the other interfaces with an address, all of which must be those of this
// shard's servers. Other VPCs may use the same address, so only the own subnet, which an
// address can't leave, is searched.
func (n *leaderAddress) others(
	ctx context.Context, own types.NetworkInterface, filter string, addr netip.Addr,
) ([]types.NetworkInterface, error) {
	holders, err := n.interfaces(ctx, is(filter, addr.String()), is("subnet-id", sdk.ToString(own.SubnetId)))
	if err != nil {
		return nil, err
	}
	id := sdk.ToString(own.NetworkInterfaceId)
	holders = slices.DeleteFunc(holders, func(i types.NetworkInterface) bool { return sdk.ToString(i.NetworkInterfaceId) == id })
	for _, i := range holders {
		if err := n.movable(i); err != nil {
			return nil, err
		}
		if odd := n.mistagged(i); odd != "" {
			return nil, fmt.Errorf("%w: leader_network: %s is an address of network interface %s, which %s for this shard's servers",
				provider.ErrInvalid, addr, sdk.ToString(i.NetworkInterfaceId), odd)
		}
	}
	return holders, nil
}

// reassign takes the IPv4 address.
func (n *leaderAddress) reassign(ctx context.Context, to types.NetworkInterface) error {
	if _, err := n.others(ctx, to, "addresses.private-ip-address", n.l.IPv4); err != nil {
		return err
	}
	_, err := n.p.api.assignAddresses(ctx, &ec2.AssignPrivateIpAddressesInput{
		NetworkInterfaceId: to.NetworkInterfaceId, PrivateIpAddresses: []string{n.l.IPv4.String()}, AllowReassignment: sdk.Bool(true),
	}, mutation)
	return changed("ec2:AssignPrivateIpAddresses", err, again(to, n.l.IPv4)...)
}

// again returns the codes with which EC2 may refuse to assign an address that an interface
// seems to have.
func again(to types.NetworkInterface, addr netip.Addr) []string {
	if slices.Contains(addressesOf(to), addr) {
		return []string{"InvalidParameterValue"}
	}
	return nil
}

// reassignIPv6 unassigns the IPv6 address from the interface it is seen on, and then assigns
// it.
func (n *leaderAddress) reassignIPv6(ctx context.Context, to types.NetworkInterface) error {
	holders, err := n.others(ctx, to, "ipv6-addresses.ipv6-address", n.l.IPv6)
	if err != nil {
		return err
	}
	address, passing := []string{n.l.IPv6.String()}, append(again(to, n.l.IPv6), "InvalidIPAddress.InUse")
	for _, i := range holders {
		passing = append(passing, "InvalidParameterValue") // a third interface may have it by now
		_, err := n.p.api.unassignIPv6(ctx, &ec2.UnassignIpv6AddressesInput{
			NetworkInterfaceId: i.NetworkInterfaceId, Ipv6Addresses: address,
		}, mutation)
		if code, _ := awsclient.Code(err); code == "InvalidParameterValue" || code == "InvalidNetworkInterfaceID.NotFound" {
			continue // the read was stale
		}
		if err := changed("ec2:UnassignIpv6Addresses", err); err != nil {
			return err
		}
	}
	_, err = n.p.api.assignIPv6(ctx, &ec2.AssignIpv6AddressesInput{
		NetworkInterfaceId: to.NetworkInterfaceId, Ipv6Addresses: address,
	}, mutation)
	return changed("ec2:AssignIpv6Addresses", err, passing...)
}
