package main

import (
	"context"
	"crypto/tls"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/rpc"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// operator calls a shard as an operator.
type operator struct{ client *rpc.Client }

// operatorID is the operator of which every shard with a kit has a record.
const operatorID fleet.InstanceID = "opr01jw51r7hsec0syhzdhqdajk8a"

// newOperator issues a certificate for the operator.
func newOperator(ca *pki.CA, addr string) (*operator, error) { return operatorOf(shardID, ca, addr) }

func operatorOf(shard string, ca *pki.CA, addr string) (*operator, error) {
	pair, err := issue(ca.IssueOperator, operatorID)
	if err != nil {
		return nil, err
	}
	endpoint := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(pki.NewBundle(ca.Certificate()), pair), Now: time.Now}
	asks, err := rpc.NewClient(rpc.ClientConfig{
		Addrs: []string{addr}, UserAgent: "bench", Random: mathrand.Float64,
		TLS: func(host string) *tls.Config { return endpoint.Client(host, shard) },
	})
	if err != nil {
		return nil, err
	}
	return &operator{asks}, nil
}

// scale requests a size and returns once it is durable.
func (o *operator) scale(ctx context.Context, size int32) error {
	err := o.client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := nstancev1.NewOperatorServiceClient(conn).UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: groupName, Size: &size})
		return err
	})
	if err != nil {
		return fmt.Errorf("scale the group: %w", err)
	}
	return nil
}

// instances returns the shard's instances, as the server sees them.
func (o *operator) instances(ctx context.Context) (all []*nstancev1.InstanceStatus, err error) {
	err = o.client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		all, err = client.Instances(ctx, nstancev1.NewOperatorServiceClient(conn), "", false)
		return err
	})
	return all, err
}

// connected counts the instances with a connected agent, as the server sees it.
func (o *operator) connected(ctx context.Context) (int, error) {
	n := 0
	all, err := o.instances(ctx)
	for _, i := range all {
		if i.GetConnected() {
			n++
		}
	}
	return n, err
}

// paint sets the var that is rendered into a file, and returns once it is durable.
func (o *operator) paint(ctx context.Context, color string) error {
	vars, err := structpb.NewStruct(map[string]any{"color": color})
	if err != nil {
		return err
	}
	err = o.client.Do(ctx, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := nstancev1.NewOperatorServiceClient(conn).UpsertGroup(ctx, &nstancev1.UpsertGroupRequest{Key: groupName, Vars: vars})
		return err
	})
	if err != nil {
		return fmt.Errorf("change a var: %w", err)
	}
	return nil
}

// hashes counts the instances by the config hash that their agents report.
func (o *operator) hashes(ctx context.Context) (map[string]int, error) {
	all, err := o.instances(ctx)
	found := map[string]int{}
	for _, i := range all {
		found[i.GetConfigHash()]++
	}
	return found, err
}

// reports returns when the server received each instance's last report.
func (o *operator) reports(ctx context.Context) (map[fleet.InstanceID]time.Time, error) {
	all, err := o.instances(ctx)
	found := map[fleet.InstanceID]time.Time{}
	for _, i := range all {
		found[fleet.InstanceID(i.GetId())] = i.GetLastReportAt().AsTime()
	}
	return found, err
}

func (o *operator) close() { o.client.Close() }
