// Package aws is a provider of EC2 instances in one region.
//
// A create is one RunInstances call with a client token made of the instance ID and subnet,
// which are durable before the call: EC2 answers a repeated call with the first call's
// instance. Calls that change something are made without SDK retries, which can't tell what a
// lost reply hid; Create is called again instead. Reads are retried by the SDK. They are stale
// at times and not monotonic, so instances are queried by filters: a query by a list of IDs
// fails as a whole if one is not visible yet.
//
// Tags are the only record, and exist as soon as the instance does.
package aws

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// Config is the configuration of a Provider.
type Config struct {
	Scope  provider.Scope
	Region string // empty: from the environment or the metadata service
	Logger *slog.Logger
	// Credentials sign the calls; nil: those of the environment, the container, or the
	// machine's role.
	Credentials sdk.CredentialsProvider
	// Getenv reads the environment; nil: os.Getenv.
	Getenv func(string) string
	// HTTPClient makes the calls; nil: the SDK's default.
	HTTPClient *http.Client
	// Leader is the leader's address; nil: none.
	Leader *Leader
}

// Default returns the default settings, as for an empty options object.
func Default(scope provider.Scope, logger *slog.Logger) Config {
	return Config{Scope: scope, Logger: logger}
}

// api holds the AWS calls as functions (pkg/awsclient/sdk.go).
type api struct {
	runInstances       call[ec2.RunInstancesInput, ec2.RunInstancesOutput]
	describeInstances  call[ec2.DescribeInstancesInput, ec2.DescribeInstancesOutput]
	terminateInstances call[ec2.TerminateInstancesInput, ec2.TerminateInstancesOutput]
	describeSubnets    call[ec2.DescribeSubnetsInput, ec2.DescribeSubnetsOutput]
	describeImages     call[ec2.DescribeImagesInput, ec2.DescribeImagesOutput]
	describeTypes      call[ec2.DescribeInstanceTypesInput, ec2.DescribeInstanceTypesOutput]
	describeInterfaces call[ec2.DescribeNetworkInterfacesInput, ec2.DescribeNetworkInterfacesOutput]
	attachInterface    call[ec2.AttachNetworkInterfaceInput, ec2.AttachNetworkInterfaceOutput]
	detachInterface    call[ec2.DetachNetworkInterfaceInput, ec2.DetachNetworkInterfaceOutput]
	assignAddresses    call[ec2.AssignPrivateIpAddressesInput, ec2.AssignPrivateIpAddressesOutput]
	assignIPv6         call[ec2.AssignIpv6AddressesInput, ec2.AssignIpv6AddressesOutput]
	unassignIPv6       call[ec2.UnassignIpv6AddressesInput, ec2.UnassignIpv6AddressesOutput]
	registerTargets    balancing[elb.RegisterTargetsInput, elb.RegisterTargetsOutput]
	deregisterTargets  balancing[elb.DeregisterTargetsInput, elb.DeregisterTargetsOutput]
	targetHealth       balancing[elb.DescribeTargetHealthInput, elb.DescribeTargetHealthOutput]
}

type (
	call[In, Out any]      func(context.Context, *In, ...func(*ec2.Options)) (*Out, error)
	balancing[In, Out any] func(context.Context, *In, ...func(*elb.Options)) (*Out, error)
)

// Provider is a provider of EC2 instances. It is safe for concurrent use.
type Provider struct {
	cfg      Config
	api      api
	known    known
	searches searches
	region   string
	leader   provider.LeaderNetwork // nil: no leader address
}

var (
	_ provider.Provider       = (*Provider)(nil)
	_ provider.SubnetCapacity = (*Provider)(nil)
	_ provider.ImageResolver  = (*Provider)(nil)
	_ provider.InstanceTypes  = (*Provider)(nil)
	_ provider.ArgsChecker    = (*Provider)(nil)
	_ provider.LoadBalancer   = (*Provider)(nil)
	_ provider.ArgsChecker    = Config{} // usable without a Provider
)

// New validates cfg and resolves the region and credentials. It does not call EC2: an
// unreachable region is a temporary error.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the aws provider: %w", err)
	}
	session, err := awsclient.Config{
		Region: cfg.Region, Credentials: cfg.Credentials, HTTPClient: cfg.HTTPClient, Getenv: cfg.Getenv,
	}.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("configure the aws provider: %w", err)
	}
	machines, err := session.SDK(awsclient.EC2)
	if err != nil {
		return nil, fmt.Errorf("configure the aws provider: %w: %w", provider.ErrInvalid, err)
	}
	targets, err := session.Brief(awsclient.LoadBalancing)
	if err != nil {
		return nil, fmt.Errorf("configure the aws provider: %w: %w", provider.ErrInvalid, err)
	}
	p := &Provider{cfg: cfg, region: session.Region, api: newAPI(ec2.NewFromConfig(machines), elb.NewFromConfig(targets))}
	p.leader = p.newLeaderNetwork()
	return p, nil
}

func newAPI(client *ec2.Client, balancer *elb.Client) api {
	return api{
		runInstances:       client.RunInstances,
		describeInstances:  client.DescribeInstances,
		terminateInstances: client.TerminateInstances,
		describeSubnets:    client.DescribeSubnets,
		describeImages:     client.DescribeImages,
		describeTypes:      client.DescribeInstanceTypes,
		describeInterfaces: client.DescribeNetworkInterfaces,
		attachInterface:    client.AttachNetworkInterface,
		detachInterface:    client.DetachNetworkInterface,
		assignAddresses:    client.AssignPrivateIpAddresses,
		assignIPv6:         client.AssignIpv6Addresses,
		unassignIPv6:       client.UnassignIpv6Addresses,
		registerTargets:    balancer.RegisterTargets,
		deregisterTargets:  balancer.DeregisterTargets,
		targetHealth:       balancer.DescribeTargetHealth,
	}
}
