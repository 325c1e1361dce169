package aws

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// vmOf converts an EC2 instance.
func vmOf(i types.Instance) provider.VM {
	tags := tagMap(i.Tags)
	vm := provider.VM{
		ID:         provider.TaggedID(tags),
		ProviderID: sdk.ToString(i.InstanceId),
		State:      provider.StateUnknown,
		Subnet:     sdk.ToString(i.SubnetId),
		Hostname:   tags[tagHostname],
		DNSNames:   dnsNames(i),
		Addresses:  addresses(i),
		Tags:       tags,
	}
	if i.LaunchTime != nil {
		vm.CreatedAt = i.LaunchTime.UTC()
	}
	if i.State != nil {
		vm.State = stateOf(i.State.Name)
	}
	if !vm.State.Alive() {
		vm.Reason = reasonOf(i)
	}
	return vm
}

func stateOf(s types.InstanceStateName) provider.State {
	switch s {
	case types.InstanceStateNamePending:
		return provider.StatePending
	case types.InstanceStateNameRunning:
		return provider.StateRunning
	case types.InstanceStateNameStopping:
		return provider.StateStopping
	case types.InstanceStateNameStopped:
		return provider.StateStopped
	case types.InstanceStateNameShuttingDown:
		return provider.StateDeleting
	case types.InstanceStateNameTerminated:
		return provider.StateDeleted
	default:
		return provider.StateUnknown
	}
}

// reasonOf returns why an instance ended. EC2's message usually begins with its code.
func reasonOf(i types.Instance) string {
	if i.StateReason == nil {
		return sdk.ToString(i.StateTransitionReason)
	}
	code, message := sdk.ToString(i.StateReason.Code), sdk.ToString(i.StateReason.Message)
	switch {
	case code == "" || strings.HasPrefix(message, code):
		return message
	case message == "":
		return code
	default:
		return code + ": " + message
	}
}

// dnsNames returns the names that the VPC's resolver answers for. AWS assigns them; instances
// can't change them.
func dnsNames(i types.Instance) []string {
	if name := strings.ToLower(strings.TrimSuffix(sdk.ToString(i.PrivateDnsName), ".")); name != "" {
		return []string{name}
	}
	return nil
}

// addresses returns an instance's addresses, the private one first.
func addresses(i types.Instance) []netip.Addr {
	texts := []*string{i.PrivateIpAddress, i.Ipv6Address, i.PublicIpAddress}
	for _, n := range i.NetworkInterfaces {
		texts = append(texts, n.PrivateIpAddress)
		for _, six := range n.Ipv6Addresses {
			texts = append(texts, six.Ipv6Address)
		}
	}
	var out []netip.Addr
	for _, text := range texts {
		if addr, err := netip.ParseAddr(sdk.ToString(text)); err == nil && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// notThere reports whether a call was refused because the instance does not exist.
func notThere(err error) bool { return errors.Is(err, provider.ErrNotFound) }

// perID reports whether a batch was refused because of one of its IDs.
func perID(err error) bool { return notThere(err) || errors.Is(err, provider.ErrInvalid) }

// told adds the instance to an error of terminate. The guard's error stays unchanged.
func told(id string, err error) error {
	if code, status := awsclient.Code(err); code == "" && status == 0 {
		return err
	}
	return fmt.Errorf("terminate %s: %w", id, err)
}
