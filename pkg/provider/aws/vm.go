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

// vmOf reads what EC2 says of an instance.
func vmOf(i types.Instance) provider.VM {
	tags := tagMap(i.Tags)
	vm := provider.VM{
		ID:         provider.TaggedID(tags),
		ProviderID: sdk.ToString(i.InstanceId),
		State:      provider.StateUnknown,
		Subnet:     sdk.ToString(i.SubnetId),
		Hostname:   tags[tagHostname],
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

// reasonOf says why an instance ended. EC2's message begins with its code, mostly.
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

// addresses returns those of an instance, the private one first.
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

// notThere reports whether a call was refused because there is no such instance.
func notThere(err error) bool { return errors.Is(err, provider.ErrNotFound) }

// perID reports whether a batch was refused for one of its ids.
func perID(err error) bool { return notThere(err) || errors.Is(err, provider.ErrInvalid) }

// told says which instance could not be ended. The guard's own error stays as it is.
func told(id string, err error) error {
	if code, status := awsclient.Code(err); code == "" && status == 0 {
		return err
	}
	return fmt.Errorf("terminate %s: %w", id, err)
}
