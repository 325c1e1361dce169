package kubenode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/provider"
)

// The labels on a Node that is kept here. The first two say whose it is.
const (
	labelCluster = "nstance.dev/cluster"
	labelShard   = "nstance.dev/shard"
	labelGroup   = "nstance.dev/group"
	labelHost    = "kubernetes.io/hostname"
	labelOS      = "kubernetes.io/os"
	labelArch    = "kubernetes.io/arch"
)

// leases is the namespace in which each Node's lease says that it lives.
const leases = "kube-node-lease"

// notReady keeps pods off a Node that is new. Where a control plane does not lift it
// by itself, as one without the node lifecycle controller, the keeper does.
const notReady = "node.kubernetes.io/not-ready"

// Config is what a keeper needs.
type Config struct {
	Kubeconfig string // path
	Scope      provider.Scope
	Kind, Zone string // of the provider, for Node.spec.providerID
	// Interval is between two comparisons, and between two signs of life of a Node.
	Interval time.Duration
	Now      func() time.Time
	Logger   *slog.Logger
}

// Default returns the config of a provider without a zone.
func Default(kubeconfig string, scope provider.Scope, kind string, logger *slog.Logger) Config {
	const interval = 10 * time.Second // as kubelets do
	return Config{Kubeconfig: kubeconfig, Scope: scope, Kind: kind, Interval: interval, Now: time.Now, Logger: logger}
}

// keeper has the Nodes follow the machines.
type keeper struct {
	cfg  Config
	list func(context.Context) ([]provider.VM, error)
	wake chan struct{}
	end  context.CancelFunc
	done sync.WaitGroup

	// Of the one goroutine that runs:
	api     *endpoint
	version string                           // of the API server: a kubelet's would be about the same
	trouble string                           // what was last complained of
	told    map[fleet.InstanceID]provider.VM // what a Node's status was last made from
}

// start begins to keep Nodes for what list returns, until stop.
func start(cfg Config, list func(context.Context) ([]provider.VM, error)) *keeper {
	ctx, end := context.WithCancel(context.Background())
	k := &keeper{cfg: cfg, list: list, wake: make(chan struct{}, 1), end: end, told: map[fleet.InstanceID]provider.VM{}}
	k.done.Go(func() { k.run(ctx) })
	return k
}

// stop ends the keeping. The Nodes stay, as the machines do.
func (k *keeper) stop() {
	k.end()
	k.done.Wait()
}

// poke has the keeper look at once.
func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default: // it is about to
	}
}

func (k *keeper) run(ctx context.Context) {
	every := time.NewTicker(k.cfg.Interval)
	defer every.Stop()
	for {
		k.complain(ctx, k.compare(ctx))
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-k.wake:
		}
	}
}

// complain writes an error to the log when it is another one than before.
func (k *keeper) complain(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == k.trouble {
		return
	}
	k.trouble = text
	if err == nil {
		k.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "nodes follow the machines again")
		return
	}
	k.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "nodes don't follow the machines", slog.Any("error", err))
}

// compare makes the Nodes like the machines.
func (k *keeper) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(k.cfg.Interval, time.Second)*3)
	defer cancel()
	if k.api == nil {
		api, err := open(k.cfg.Kubeconfig, k.cfg.Interval)
		if err != nil {
			return err // the file may come later: whoever runs the API server writes it
		}
		if k.version, err = api.version(ctx); err != nil {
			return err
		}
		k.api = api
	}
	vms, err := k.list(ctx)
	if err != nil {
		return err
	}
	have, err := k.api.list(ctx, labelCluster+"="+k.cfg.Scope.ClusterID+","+labelShard+"="+k.cfg.Scope.Shard)
	if err != nil {
		k.api = nil // the file may name another server by now
		return err
	}
	return k.follow(ctx, vms, have)
}

func (k *keeper) follow(ctx context.Context, vms []provider.VM, have []node) error {
	byName := make(map[string]node, len(have))
	for _, n := range have {
		byName[n.Metadata.Name] = n
	}
	var errs []error
	alive := map[fleet.InstanceID]bool{}
	for _, vm := range vms {
		if vm.ID == "" || !vm.State.Alive() {
			continue
		}
		alive[vm.ID] = true
		n, there := byName[string(vm.ID)]
		delete(byName, string(vm.ID))
		errs = append(errs, k.keep(ctx, vm, n, there))
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		errs = append(errs, k.api.remove(ctx, byName[name]))
	}
	for id := range k.told { // also where somebody else has removed the Node
		if !alive[id] {
			delete(k.told, id)
		}
	}
	return errors.Join(errs...)
}

// keep has one Node be there, be ready, and show a sign of life.
func (k *keeper) keep(ctx context.Context, vm provider.VM, n node, there bool) error {
	if !there {
		// Whole, as a kubelet does: nobody is to see a Node of which nothing is known yet.
		err := k.api.create(ctx, k.node(vm), &n)
		if refused(err, http.StatusConflict) {
			err = k.adopt(ctx, vm, &n)
		}
		if err != nil {
			return err
		}
		k.told[vm.ID] = vm
	} else if !sameVM(k.told[vm.ID], vm) {
		if err := k.describe(ctx, vm, &n); err != nil {
			return err
		}
		k.told[vm.ID] = vm
	}
	rest := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t taint) bool { return t.Key == notReady })
	if len(rest) < len(n.Spec.Taints) {
		if err := k.api.removeTaints(ctx, n, rest); err != nil {
			return err
		}
	}
	return k.renew(ctx, n)
}

// adopt makes a Node that is there, and not found by its labels, the machine's. One with
// the labels of another shard is not touched.
func (k *keeper) adopt(ctx context.Context, vm provider.VM, n *node) error {
	if err := k.api.get(ctx, string(vm.ID), n); err != nil {
		return err
	}
	for label, ours := range map[string]string{labelCluster: k.cfg.Scope.ClusterID, labelShard: k.cfg.Scope.Shard} {
		if theirs := n.Metadata.Labels[label]; theirs != "" && theirs != ours {
			return fmt.Errorf("node %s: label %s is %q, want %q: somebody else keeps it", vm.ID, label, theirs, ours)
		}
	}
	return k.describe(ctx, vm, n)
}

// sameVM compares what a Node shows.
func sameVM(a, b provider.VM) bool {
	return a.ProviderID == b.ProviderID && a.Hostname == b.Hostname && reflect.DeepEqual(a.Addresses, b.Addresses)
}

// node is the whole Node of a machine.
func (k *keeper) node(vm provider.VM) object {
	name := string(vm.ID)
	return object{
		APIVersion: "v1", Kind: "Node", Metadata: metadata{Name: name, Labels: map[string]string{
			labelCluster: k.cfg.Scope.ClusterID, labelShard: k.cfg.Scope.Shard, labelGroup: vm.Tags[provider.TagGroup],
			labelHost: cmp.Or(vm.Hostname, name), labelOS: runtime.GOOS, labelArch: runtime.GOARCH,
		}},
		Spec:   nodeSpec{ProviderID: fleet.NodeProviderID(k.cfg.Kind, k.cfg.Zone, vm.ProviderID)},
		Status: k.status(vm),
	}
}

// describe has a Node that is there be as its machine is.
func (k *keeper) describe(ctx context.Context, vm provider.VM, n *node) error {
	spec, status := k.node(vm), k.node(vm)
	path := "/api/v1/nodes/" + spec.Metadata.Name
	spec.Status = nil
	if err := k.api.apply(ctx, path, spec, nil); err != nil {
		return err
	}
	status.Metadata.Labels, status.Spec = nil, nil
	return k.api.apply(ctx, path+"/status", status, n)
}

func (k *keeper) status(vm provider.VM) nodeStatus {
	room := map[string]string{"cpu": strconv.Itoa(runtime.NumCPU()), "memory": "4Gi", "pods": "110"}
	s := nodeStatus{Capacity: room, Allocatable: room, Info: nodeInfo{
		Architecture: runtime.GOARCH, OperatingSystem: runtime.GOOS, KubeletVersion: k.version,
	}}
	for _, a := range vm.Addresses {
		s.Addresses = append(s.Addresses, address{Type: "InternalIP", Address: a.String()})
	}
	s.Addresses = append(s.Addresses, address{Type: "Hostname", Address: cmp.Or(vm.Hostname, string(vm.ID))})
	now := k.cfg.Now().UTC().Truncate(time.Second)
	s.Conditions = []condition{{
		Type: "Ready", Status: "True", Reason: "MachineRuns", LastHeartbeatTime: now, LastTransitionTime: now,
		Message: fmt.Sprintf("the machine of provider %s runs; no kubelet does", k.cfg.Kind),
	}}
	return s
}

// renew is the Node's sign of life.
func (k *keeper) renew(ctx context.Context, n node) error {
	return k.api.apply(ctx, "/apis/coordination.k8s.io/v1/namespaces/"+leases+"/leases/"+n.Metadata.Name, object{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Metadata: metadata{
			Name: n.Metadata.Name, Namespace: leases,
			OwnerReferences: []owner{{APIVersion: "v1", Kind: "Node", Name: n.Metadata.Name, UID: n.Metadata.UID}},
		},
		Spec: leaseSpec{HolderIdentity: n.Metadata.Name, LeaseDurationSeconds: 40, RenewTime: k.cfg.Now().UTC().Format(microTime)},
	}, nil)
}
