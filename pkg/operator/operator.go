// Package operator implements nstance-operator. Run builds the parts in order; leader.go is
// the leader's work, and controllers.go lists all controllers.
package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/nstance/nstance/pkg/api/v1beta1"
	"github.com/nstance/nstance/pkg/operator/capi"
	"github.com/nstance/nstance/pkg/operator/settings"
	"github.com/nstance/nstance/pkg/operator/workload"
)

// leaseName is the name of the Lease for leader election.
const leaseName = "nstance-operator-leader-election"

// Config configures an operator.
type Config struct {
	settings.Settings
	// REST configures access to the API server.
	REST    *rest.Config
	Version string
	// Host identifies this process in the Lease.
	Host     string
	ReadFile func(path string) ([]byte, error)
	Now      func() time.Time
	Random   func() float64 // in [0, 1), for jitter
	Entropy  io.Reader      // for keys
	// ShardTimeout bounds a registration or a certificate renewal at one shard; zero means 15
	// s.
	ShardTimeout time.Duration
	// Dialer connects to shards; nil means TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
	Logger logr.Logger
}

func (c Config) userAgent() string { return "nstance-operator/" + c.Version }

// Run runs an operator until ctx ends; then it returns nil. It fails when only a restart can
// help: no identity can be obtained, or the leadership is lost.
func Run(ctx context.Context, c Config) error {
	c.REST, c.ShardTimeout = restConfig(c), cmp.Or(c.ShardTimeout, 15*time.Second)
	log := slog.New(logr.ToSlogHandler(c.Logger))
	if c.DisableWebhooks {
		log.LogAttrs(ctx, slog.LevelInfo, "--disable-webhooks has no effect: there are no webhooks")
	}
	mgr, err := newManager(c)
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	leader, err := newLeader(c, log)
	if err != nil {
		return err
	}
	nodes, err := newWorkload(ctx, mgr, c)
	if err != nil {
		return fmt.Errorf("reach the workload cluster: %w", err)
	}
	for _, add := range []error{
		mgr.Add(leader),
		mgr.Add(&fileWatch{config: c, leader: leader, log: log}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("identity", func(r *http.Request) error { return leader.ready(r.Context(), mgr.Elected()) }),
	} {
		if add != nil {
			return add
		}
	}
	if err := mayKeepKubeconfig(ctx, mgr.GetAPIReader(), c); err != nil {
		return err
	}
	for _, one := range controllers(parts{Settings: c.Settings, manager: mgr, shards: leader.shards, workload: nodes, now: c.Now}) {
		if err := one.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up %T: %w", one, err)
		}
	}
	return mgr.Start(ctx)
}

// restConfig returns the client config for the API server, without a client-side rate limit:
// the server has its own, and a limit here would only add waits.
func restConfig(c Config) *rest.Config {
	r := rest.CopyConfig(c.REST)
	r.UserAgent, r.QPS = c.userAgent(), -1
	if c.JSON {
		r.ContentType, r.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		r.Wrap(func(next http.RoundTripper) http.RoundTripper { return jsonOnly{next} })
	}
	return r
}

// jsonOnly requests JSON only. A metadata client prefers protobuf, whatever its config says.
type jsonOnly struct{ next http.RoundTripper }

func (j jsonOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	var accepted []string
	for _, one := range strings.Split(r.Header.Get("Accept"), ",") {
		if !strings.Contains(one, runtime.ContentTypeProtobuf) {
			accepted = append(accepted, one)
		}
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept", strings.Join(accepted, ","))
	return j.next.RoundTrip(r)
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newWorkload returns the cluster that has nodes and pods.
func newWorkload(ctx context.Context, mgr ctrl.Manager, c Config) (*workload.Cluster, error) {
	if c.CAPIEndpoint == "" {
		return workload.Local(ctx, mgr)
	}
	name := capi.KubeconfigName(capi.ClusterName(c.File.Cluster, c.File.Tenant))
	return workload.External(mgr, kube.ObjectKey{Namespace: c.Namespace, Name: name})
}
