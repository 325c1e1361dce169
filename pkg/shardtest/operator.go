package shardtest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/object"
	"github.com/nstance/nstance/pkg/pki"
	"github.com/nstance/nstance/pkg/record"
	"github.com/nstance/nstance/pkg/rpc"
	"github.com/nstance/nstance/pkg/secrets"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// operatorAddr is the host of operators.
const operatorAddr = "172.16.0.1"

// operator is a client of the shard with an operator's certificate, which the cluster's CA
// issues without a record. One goroutine makes all calls.
type operator struct {
	shard  *Shard
	host   *Host
	rand   *random
	client *rpc.Client
	jobs   chan func()
	work   sync.WaitGroup // queued and active jobs
	cancel context.CancelFunc
	ctx    context.Context // ends with the simulation
}

func newOperator(s *Shard) *operator {
	ctx, cancel := context.WithCancel(context.Background())
	o := &operator{
		shard: s, host: s.network.Host(operatorAddr), rand: newRandom(s.opts.Seed, "operator"),
		jobs: make(chan func(), maxSteps), ctx: ctx, cancel: cancel,
	}
	s.work.Go(o.serve)
	return o
}

// serve makes the queued calls, one after the other.
func (o *operator) serve() {
	for job := range o.jobs {
		job()
		o.work.Done()
	}
}

// queue queues a call.
func (o *operator) queue(job func()) {
	o.work.Add(1)
	o.jobs <- job
}

// idle returns when all queued calls have been made.
func (o *operator) idle() { o.work.Wait() }

// connect creates the client once the cluster has a CA.
func (o *operator) connect(ctx context.Context) error {
	if o.client != nil {
		return nil
	}
	sealed, err := secrets.Open(ctx, secrets.Config{
		Provider: "object-storage", Prefix: "cluster/secret/", Key: secrets.KeySource{Provider: "env", Source: "K"},
		Store: o.shard.mem, Random: o.rand, Sources: secrets.LocalSources(func(string) string { return encryptionKey }),
	})
	if err != nil {
		return err
	}
	trust, err := secrets.Load(ctx, secrets.BootstrapConfig{Store: o.shard.mem, Secrets: sealed})
	if err != nil {
		return err
	}
	pair, err := o.certificate(ctx, trust)
	if err != nil {
		return err
	}
	endpoint := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(trust.Bundle, pair), Now: time.Now}
	var addrs []string
	for _, v := range o.shard.servers {
		addrs = append(addrs, v.addr+":8993")
	}
	o.client, err = rpc.NewClient(rpc.ClientConfig{
		Addrs: addrs, UserAgent: "sim", Random: o.shard.chance("operator"), Dialer: o.host.Dial,
		TLS: func(host string) *tls.Config { return endpoint.Client(host, shardID) },
	})
	return err
}

func (o *operator) certificate(ctx context.Context, trust secrets.Trust) (*pki.Keypair, error) {
	key, err := pki.GenerateKey(o.rand)
	if err != nil {
		return nil, err
	}
	id, err := fleet.NewID(fleet.OperatorKind, time.Now(), o.rand)
	if err != nil {
		return nil, err
	}
	known := fleet.Operator{ID: id, Tenant: fleet.DefaultTenant, RegisteredAt: time.Now()}
	body, err := json.Marshal(known.Written(0, "operator"))
	if err == nil {
		body, err = record.NewSeal(trust.CA.DeriveKey(fleet.OperatorSeal)).Close(known.Key(), body)
	}
	if err != nil {
		return nil, err
	}
	if _, err := o.shard.mem.Put(ctx, known.Key(), body, object.IfAbsent()); err != nil {
		return nil, err
	}
	cert, err := trust.CA.IssueOperator(pki.ClientRequest{
		Tenant: fleet.DefaultTenant, ID: string(id), PublicKey: pki.PublicKey(key), Now: time.Now(), TTL: 90 * 24 * time.Hour,
	}, o.rand)
	if err != nil {
		return nil, err
	}
	return pki.NewKeypair(cert, key)
}

func (o *operator) close() {
	o.cancel()
	close(o.jobs)
	o.idle()
	if o.client != nil {
		o.client.Close()
	}
}

// call makes one call, and retries it while no server leads, until patience is over.
func call[T any](o *operator, patience time.Duration, do func(context.Context, nstancev1.OperatorServiceClient) (T, error)) (T, error) {
	var answer T
	ctx, cancel := context.WithTimeout(o.ctx, patience)
	defer cancel()
	if err := o.connect(ctx); err != nil {
		return answer, fmt.Errorf("connect: %w", err)
	}
	err := o.client.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		answer, err = do(ctx, nstancev1.NewOperatorServiceClient(cc))
		return err
	})
	return answer, err
}

// groups returns the shard's groups as its leader sees them.
func (o *operator) groups(patience time.Duration) ([]*nstancev1.GroupStatus, error) {
	answer, err := call(o, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) (*nstancev1.ListGroupsResponse, error) {
		return c.ListGroups(ctx, &nstancev1.ListGroupsRequest{})
	})
	return answer.GetGroups(), err
}

// instances returns the shard's instances as its leader sees them.
func (o *operator) instances(patience time.Duration) ([]*nstancev1.InstanceStatus, error) {
	return call(o, patience, func(ctx context.Context, c nstancev1.OperatorServiceClient) ([]*nstancev1.InstanceStatus, error) {
		return client.Instances(ctx, c, "", false)
	})
}

// silent returns the instances whose agent is not connected.
func (o *operator) silent() (wrong []string) {
	all, err := o.instances(settleStep)
	if err != nil {
		return []string{"list instances: " + err.Error()}
	}
	for _, i := range all {
		if i.GetPhase() == nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING && !i.GetConnected() {
			wrong = append(wrong, i.GetId()+" is running and its agent is not connected")
		}
	}
	return wrong
}
