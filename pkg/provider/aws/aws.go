// Package aws is a provider whose machines are EC2 instances of one region.
//
// A create is one call of RunInstances with a client token made of the instance id and
// the subnet, both of which were durable before: EC2 itself answers a repeated create
// with what the first one made. Calls that change something are made once, for the
// SDK's own retries can't tell what a lost reply hid; whoever calls Create asks again.
// Reads are retried as the SDK sees fit. They lag and are not monotonic, so what is
// asked for by id is asked for by filters: a list of ids fails as a whole for one that
// can't be seen yet.
//
// Tags are the only record, and are there from the moment the instance is.
package aws

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"

	"github.com/nstance/nstance/pkg/awscall"
	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
)

// Config says where instances are made, and in whose name.
type Config struct {
	Scope  provider.Scope
	Region string // empty: as the environment or the machine itself says
	Logger *slog.Logger
	// Credentials are those of the calls; nil: those of the environment, of the
	// container, or of the machine's role.
	Credentials sdk.CredentialsProvider
	// HTTPClient makes the calls; nil: the SDK's own.
	HTTPClient *http.Client
	// Leader moves an address between the servers; nil: nothing to move.
	Leader *Leader
}

// Default returns the settings that an empty options object stands for.
func Default(scope provider.Scope, logger *slog.Logger) Config {
	return Config{Scope: scope, Logger: logger}
}

// api is what of AWS is called. These are functions, rather than the client with
// its seven hundred methods: the linker keeps all methods of a value that is kept in a
// struct, and they weigh 30 MB.
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
	balancing          balancing
}

type call[In, Out any] func(context.Context, *In, ...func(*ec2.Options)) (*Out, error)

// Provider makes EC2 instances. It is safe for concurrent use.
type Provider struct {
	cfg      Config
	api      api
	known    known
	searches searches
	region   string
	leader   provider.LeaderNetwork // nil: no address to move
}

var (
	_ provider.Provider       = (*Provider)(nil)
	_ provider.SubnetCapacity = (*Provider)(nil)
	_ provider.ImageResolver  = (*Provider)(nil)
	_ provider.InstanceTypes  = (*Provider)(nil)
	_ provider.ArgsChecker    = (*Provider)(nil)
	_ provider.LoadBalancer   = (*Provider)(nil)
	_ provider.ArgsChecker    = Config{} // before there is a Provider
)

// New checks cfg, and finds out the region and where credentials come from. It does
// not call EC2: a region that can't be reached is temporary.
func New(ctx context.Context, cfg Config) (*Provider, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the aws provider: %w", err)
	}
	session, err := awsclient.Config{Region: cfg.Region, Credentials: cfg.Credentials, HTTPClient: cfg.HTTPClient}.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("configure the aws provider: %w", err)
	}
	client, err := newEC2(session)
	if err != nil {
		return nil, fmt.Errorf("configure the aws provider: %w: %w", provider.ErrInvalid, err)
	}
	balancing, err := awscall.New(session, awsclient.LoadBalancing)
	if err != nil {
		return nil, fmt.Errorf("configure the aws provider: %w: %w", provider.ErrInvalid, err)
	}
	p := &Provider{cfg: cfg, region: session.Region, api: api{
		runInstances:       client.RunInstances,
		describeInstances:  client.DescribeInstances,
		terminateInstances: client.TerminateInstances,
		describeSubnets:    client.DescribeSubnets,
		describeImages:     client.DescribeImages,
		describeTypes:      client.DescribeInstanceTypes,
		balancing:          balancing.Query,
		describeInterfaces: client.DescribeNetworkInterfaces,
		attachInterface:    client.AttachNetworkInterface,
		detachInterface:    client.DetachNetworkInterface,
		assignAddresses:    client.AssignPrivateIpAddresses,
		assignIPv6:         client.AssignIpv6Addresses,
		unassignIPv6:       client.UnassignIpv6Addresses,
	}}
	p.leader = p.newLeaderNetwork()
	return p, nil
}

// newEC2 makes the SDK's client, of which only some functions are kept. It is told where EC2
// is: the SDK would look for a region of no partition that is known in that of amazonaws.com.
func newEC2(s awsclient.Session) (*ec2.Client, error) {
	url, err := s.URL(awsclient.EC2)
	if err != nil {
		return nil, err
	}
	return ec2.New(ec2.Options{
		Region: s.Region, Credentials: s.Credentials, HTTPClient: s.HTTPClient, RetryMode: sdk.RetryModeStandard,
		BaseEndpoint: &url, APIOptions: []func(*middleware.Stack) error{forgetting(s)},
	}), nil
}

// forgetting has keys be asked for anew once EC2 has said that they have expired.
func forgetting(s awsclient.Session) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("ForgetExpiredKeys", func(
			ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler,
		) (middleware.InitializeOutput, middleware.Metadata, error) {
			out, more, err := next.HandleInitialize(ctx, in)
			if awsclient.Expired(err) {
				s.Forget("")
			}
			return out, more, err
		}), middleware.After)
	}
}
