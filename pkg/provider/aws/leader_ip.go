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

// leaderAddress moves the leader's address alone, as a secondary one of the primary
// interfaces of the servers. For IPv4 that is one call, which takes it from whoever has
// it. EC2 does not reassign IPv6: that address is first taken from the interface that
// was seen with it, which is refused if it is another's by then.
//
// The system of each server has the address all the time, and EC2's reads lag: that it
// is here is believed once the machine's own metadata service says so, too.
type leaderAddress struct{ *mover }

var _ provider.LeaderNetwork = (*leaderAddress)(nil)

const (
	reassignWait  = 30 * time.Second // for all of it
	reassignAgain = 5 * time.Second  // until an order that was taken is repeated
)

// Check implements provider.LeaderNetwork.
func (n *leaderAddress) Check(ctx context.Context) (bool, error) {
	held, _, err := within(ctx, n.look)
	return held, err
}

// look is one look at who has the addresses.
func (n *leaderAddress) look(ctx context.Context) (held bool, err error) {
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

// missing returns the addresses that this instance's primary interface does not have by
// both EC2's read and the machine's own metadata service. A read may be of a time before
// another server took them, and the system has them all the time; the metadata service
// takes a while to learn of what was given. With an error they are those of EC2's read.
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

// movable refuses an address that EC2 never moves.
func (n *leaderAddress) movable(i types.NetworkInterface) error {
	if n.l.IPv4.IsValid() && sdk.ToString(i.PrivateIpAddress) == n.l.IPv4.String() {
		return fmt.Errorf("%w: leader_network.ipv4: %s is the primary address of network interface %s, which can't be moved: "+
			"want one of the subnet that no interface began with", provider.ErrInvalid, n.l.IPv4, sdk.ToString(i.NetworkInterfaceId))
	}
	return nil
}

// reassignment is one way of the addresses to this instance.
type reassignment struct {
	n  *leaderAddress
	at map[netip.Addr]time.Time // when EC2 took the order
}

// step orders what this instance has not, by what EC2 shows now.
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
			continue // nobody shows it yet
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
		return false, unasked // the address may be here, which nobody can say
	}
	return false, fmt.Errorf("EC2 and the metadata service do not both show %v on network interface %s",
		missing, sdk.ToString(own[0].NetworkInterfaceId))
}

// others returns which interfaces but the own one are seen with an address, all of them
// this shard's servers'. Another VPC may have the same address, so it is looked for in
// the own subnet, which an address can't leave.
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
			return nil, fmt.Errorf("%w: leader_network: %s is an address of network interface %s, which %s, as those of this shard's servers have",
				provider.ErrInvalid, addr, sdk.ToString(i.NetworkInterfaceId), odd)
		}
	}
	return holders, nil
}

// reassign takes the address of IPv4.
func (n *leaderAddress) reassign(ctx context.Context, to types.NetworkInterface) error {
	if _, err := n.others(ctx, to, "addresses.private-ip-address", n.l.IPv4); err != nil {
		return err
	}
	_, err := n.p.api.assignAddresses(ctx, &ec2.AssignPrivateIpAddressesInput{
		NetworkInterfaceId: to.NetworkInterfaceId, PrivateIpAddresses: []string{n.l.IPv4.String()}, AllowReassignment: sdk.Bool(true),
	}, mutation)
	return changed("ec2:AssignPrivateIpAddresses", err, again(to, n.l.IPv4)...)
}

// again is what EC2 may refuse with that an interface gets what it seems to have.
func again(to types.NetworkInterface, addr netip.Addr) []string {
	if slices.Contains(addressesOf(to), addr) {
		return []string{"InvalidParameterValue"}
	}
	return nil
}

// reassignIPv6 takes the address of IPv6 from whoever is seen with it, and then takes it.
func (n *leaderAddress) reassignIPv6(ctx context.Context, to types.NetworkInterface) error {
	holders, err := n.others(ctx, to, "ipv6-addresses.ipv6-address", n.l.IPv6)
	if err != nil {
		return err
	}
	address, passing := []string{n.l.IPv6.String()}, append(again(to, n.l.IPv6), "InvalidIPAddress.InUse")
	for _, i := range holders {
		passing = append(passing, "InvalidParameterValue") // a third may have it by now
		_, err := n.p.api.unassignIPv6(ctx, &ec2.UnassignIpv6AddressesInput{
			NetworkInterfaceId: i.NetworkInterfaceId, Ipv6Addresses: address,
		}, mutation)
		if code, _ := awsclient.Code(err); code == "InvalidParameterValue" || code == "InvalidNetworkInterfaceID.NotFound" {
			continue // the read was of a moment before
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
