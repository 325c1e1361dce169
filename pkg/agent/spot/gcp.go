package spot

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
)

// gcp is the metadata server of Compute Engine.
type gcp struct {
	*metadata
	host string // empty: the default
	now  func() time.Time
}

// The protocol (cloud.google.com/compute/docs/instances/preemptible,
// cloud.google.com/compute/docs/metadata/querying-metadata).
const (
	gcpHeader     = "Metadata-Flavor"
	gcpFlavor     = "Google" // in every request and response
	gcpRoot       = "/computeMetadata/v1/instance/"
	gcpLent       = "scheduling/preemptible"
	gcpModel      = "scheduling/provisioning-model"
	gcpPreempted  = "preempted"
	gcpTrue       = "TRUE"
	gcpFalse      = "FALSE"
	gcpSource     = "gcp-preemption"
	gcpWarning    = 30 * time.Second // from the notice to the end of the machine
	gcpPreemption = "terminate"
)

func (g *gcp) name() string { return "gcp" }

// reclaimable reads the older property first: it is also true for spot machines, if the server
// has it.
func (g *gcp) reclaimable(ctx context.Context) (bool, error) {
	lent, err := g.isTrue(ctx, gcpLent)
	if err != nil || lent {
		return lent, err
	}
	got, err := g.get(ctx, gcpModel)
	switch {
	case err != nil:
		return false, err
	case got.code == http.StatusNotFound:
		return false, nil
	case got.code != http.StatusOK:
		return false, got.unexpected(gcpModel)
	}
	return got.body == "SPOT", nil
}

func (g *gcp) notice(ctx context.Context) (fleet.Notice, bool, error) {
	preempted, err := g.isTrue(ctx, gcpPreempted)
	if err != nil || !preempted {
		return fleet.Notice{}, false, err
	}
	return fleet.Notice{Source: gcpSource, Action: gcpPreemption, At: g.now().Add(gcpWarning).UTC()}, true, nil
}

func (g *gcp) isTrue(ctx context.Context, path string) (bool, error) {
	got, err := g.get(ctx, path)
	switch {
	case err != nil:
		return false, err
	case got.code != http.StatusOK:
		return false, got.unexpected(gcpRoot + path)
	case got.body != gcpTrue && got.body != gcpFalse:
		return false, fmt.Errorf("get %s from the metadata service: value %.40q: want TRUE or FALSE", gcpRoot+path, got.body)
	}
	return got.body == gcpTrue, nil
}

func (g *gcp) get(ctx context.Context, path string) (answer, error) {
	got, err := g.fetch(ctx, http.MethodGet, "http://"+cmp.Or(g.host, linkLocal)+gcpRoot+path, gcpHeader, gcpFlavor)
	if err == nil && got.header.Get(gcpHeader) != gcpFlavor {
		err = fmt.Errorf("%w: no header %s: %s in the response", errNotHere, gcpHeader, gcpFlavor)
	}
	return got, err
}
