package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

type groupInput struct {
	Target
	Group string `path:"group" doc:"Key of the group"`
}

type listGroupsInput struct {
	Target
	Omit []string `query:"omit" enum:"instances,vars" doc:"What the groups are listed without"`
}

// Change is what a request that may remove machines has.
type Change struct {
	Target
	Yes bool `query:"yes" doc:"Confirms that machines go: without it, a change that removes all instances of a group is refused"`

	Force bool `query:"force" doc:"Changes a group although something else manages it, which no longer does until it changes the group again"`
}

// DeleteInput is a request to delete a group.
type DeleteInput struct {
	Change
	Group string `path:"group" doc:"Key of the group"`
}

// Condition is a condition on a group's revision.
type Condition struct {
	IfMatch string `header:"If-Match" doc:"The group's etag, in quotes: change it only if it still has this one. Requires a single shard"`
}

type rolloutInput struct {
	DeleteInput
	Condition
}

type scaleInput struct {
	Change
	Condition
	Body struct {
		Group  string   `json:"group" minLength:"1" doc:"Key of the group"`
		Size   int32    `json:"size" minimum:"0" doc:"How many instances it should have"`
		Remove []string `json:"remove,omitempty" doc:"IDs of the instances to remove for this size. Requires a single shard"`
	}
}

type putInput struct {
	DeleteInput
	Condition
	IfNoneMatch string `header:"If-None-Match" enum:"*" doc:"Create the group only if there is none"`
	Body        struct {
		Template      *string        `json:"template,omitempty" doc:"Required to create the group"`
		Size          *int32         `json:"size,omitempty" minimum:"0" doc:"How many instances the group should have"`
		InstanceType  *string        `json:"instance_type,omitempty"`
		SubnetPool    *string        `json:"subnet_pool,omitempty"`
		Vars          map[string]any `json:"vars,omitempty" doc:"Vars that override the template's"`
		MaxSurge      *string        `json:"max_surge,omitempty" doc:"Count (\"3\") or percentage (\"5%\") above the size during replacement"`
		RolloutPaused *bool          `json:"rollout_paused,omitempty" doc:"Whether working instances are kept although they are outdated"`
		OnDemand      *podPolicy     `json:"on_demand,omitempty" doc:"Which pods get instances of the group; an empty object: none"`
	}
}

type podPolicy struct {
	Namespaces      []string          `json:"namespaces,omitempty" maxItems:"100" doc:"Names of Namespaces, or *"`
	NamespaceLabels map[string]string `json:"namespace_labels,omitempty" doc:"In addition, Namespaces with all of these labels"`
	InstanceTypes   []string          `json:"instance_types,omitempty" maxItems:"100" doc:"Types besides the group's own"`
	Max             int32             `json:"max,omitempty" minimum:"0" maximum:"10000" doc:"The most on-demand instances of the group"`
	MaxPerNamespace int32             `json:"max_per_namespace,omitempty" minimum:"0" doc:"The most for pods of one Namespace; 0: max"`
}

// deleted is the answer to a delete of a group.
type deleted struct {
	Key        string   `json:"key"`
	DeletingIn []string `json:"deleting_in" doc:"The shards that accepted"`
}

func (a *API) groups() {
	huma.Register(a.huma, a.operation(operation{
		id: "group-list", method: http.MethodGet, path: "/groups", summary: "List groups",
		answers: types{200: []admin.Group{}, 207: Partial[admin.Group]{}},
	}), func(ctx context.Context, in *listGroupsInput) (*reply, error) {
		shards, err := in.read(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		with := client.Parts{Instances: !slices.Contains(in.Omit, "instances"), Vars: !slices.Contains(in.Omit, "vars")}
		all, err := a.cfg.Service.ListGroups(ctx, shards, with)
		return gathered(shards, all, err, false)
	})
	huma.Register(a.huma, a.operation(operation{
		id: "group-status", method: http.MethodGet, path: "/groups/{group}", summary: "Show a group, in each shard that has it",
		description: "If one shard has it, ETag is its etag.",
		answers:     types{200: []admin.Group{}, 207: Partial[admin.Group]{}},
	}), func(ctx context.Context, in *groupInput) (*reply, error) {
		shards, err := in.read(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		all, err := a.cfg.Service.GroupStatus(ctx, shards, in.Group)
		return withETag(gathered(shards, all, err, false))
	})
	huma.Register(a.huma, a.operation(operation{
		id: "group-put", method: http.MethodPut, path: "/groups/{group}", summary: "Create or change a group", conditional: true, body: true,
		description: "Fields that are left out stay as they are.",
		answers:     types{200: []admin.Group{}, 207: Partial[admin.Group]{}},
	}), a.putGroup)
	huma.Register(a.huma, a.operation(operation{
		id: "group-scale", method: http.MethodPost, path: "/group/scale", summary: "Set the size of a group", conditional: true, body: true,
		answers: types{200: []admin.Group{}, 207: Partial[admin.Group]{}},
	}), func(ctx context.Context, in *scaleInput) (*reply, error) {
		req := &nstancev1.UpsertGroupRequest{Key: in.Body.Group, Size: &in.Body.Size, Remove: in.Body.Remove}
		return a.upsert(ctx, in.Change, in.IfMatch, req)
	})
	huma.Register(a.huma, a.operation(operation{
		id: "group-abort", method: http.MethodPost, path: "/groups/{group}/abort", conditional: true,
		summary:     "Go back to the definition before a rollout",
		description: "The group refuses its present definition, until another one has been rolled out or the rollout is retried.",
		answers:     types{200: []admin.Group{}, 207: Partial[admin.Group]{}},
	}), a.rollout(Service.AbortRollout))
	huma.Register(a.huma, a.operation(operation{
		id: "group-retry", method: http.MethodPost, path: "/groups/{group}/retry", conditional: true,
		summary: "Roll out what was aborted after all",
		answers: types{200: []admin.Group{}, 207: Partial[admin.Group]{}},
	}), a.rollout(Service.RetryRollout))
	huma.Register(a.huma, a.operation(operation{
		id: "group-delete", method: http.MethodDelete, path: "/groups/{group}", summary: "Scale a dynamic group to zero and delete it",
		description: "It also removes the group's on-demand instances.",
		answers:     types{202: deleted{}, 207: Partial[deleted]{}},
	}), a.deleteGroup)
}

func (a *API) putGroup(ctx context.Context, in *putInput) (*reply, error) {
	req := &nstancev1.UpsertGroupRequest{
		Key: in.Group, Size: in.Body.Size, Template: in.Body.Template, InstanceType: in.Body.InstanceType, SubnetPool: in.Body.SubnetPool,
		MaxSurge: in.Body.MaxSurge, RolloutPaused: in.Body.RolloutPaused, Create: in.IfNoneMatch != "",
	}
	if in.Body.Vars != nil {
		vars, err := structpb.NewStruct(in.Body.Vars)
		if err != nil {
			return nil, invalidField("body.vars", err.Error())
		}
		req.Vars = vars
	}
	if o := in.Body.OnDemand; o != nil {
		req.OnDemand = &nstancev1.OnDemand{
			Namespaces: o.Namespaces, NamespaceLabels: o.NamespaceLabels, InstanceTypes: o.InstanceTypes, Max: o.Max,
			MaxPerNamespace: o.MaxPerNamespace,
		}
	}
	return a.upsert(ctx, in.Change, in.IfMatch, req)
}

// upsert changes a group. It is confirmed before it removes all instances of an existing one.
func (a *API) upsert(ctx context.Context, in Change, match string, req *nstancev1.UpsertGroupRequest) (*reply, error) {
	shards, err := in.write(a.cfg.Shards)
	if err != nil {
		return nil, err
	}
	if req.IfEtag, err = matching(match, shards); err != nil {
		return nil, err
	}
	switch {
	case match != "" && req.GetCreate():
		return nil, invalidField("If-Match", "it excludes If-None-Match")
	case len(shards) > 1 && len(req.GetRemove()) > 0: // a shard without the instance would remove its oldest instead
		return nil, invalidField("body.remove", fmt.Sprintf("%.80q is an instance of one shard: add shard=NAME", req.GetRemove()[0]))
	}
	if !req.GetCreate() && req.Size != nil && req.GetSize() == 0 {
		if err := a.confirmed(ctx, in.Yes, shards, req.GetKey(), false); err != nil {
			return nil, err
		}
	}
	req.Force = in.Force
	all, err := a.cfg.Service.UpsertGroup(ctx, shards, req)
	return withETag(gathered(shards, all, err, match != ""))
}

// matching returns the etag of an If-Match, if there is one, for a call to shards.
func matching(match string, shards []client.Shard) (etag *string, err error) {
	if match == "" {
		return nil, nil //nolint:nilnil // unconditional
	}
	text, ok := unquote(match)
	switch {
	case !ok:
		return nil, invalidField("If-Match", fmt.Sprintf("%.80q is not valid: want a group's etag in quotes", match))
	case len(shards) > 1:
		return nil, invalidField("If-Match", fmt.Sprintf("%.80s belongs to a group of one shard: add shard=NAME", match))
	}
	return &text, nil
}

// rollout makes a change of a group's rollout.
func (a *API) rollout(
	change func(Service, context.Context, []client.Shard, string, *string) ([]admin.Group, error),
) func(context.Context, *rolloutInput) (*reply, error) {
	return func(ctx context.Context, in *rolloutInput) (*reply, error) {
		shards, err := in.write(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		etag, err := matching(in.IfMatch, shards)
		if err != nil {
			return nil, err
		}
		all, err := change(a.cfg.Service, ctx, shards, in.Group, etag)
		return withETag(gathered(shards, all, err, etag != nil))
	}
}

// unquote returns the etag of an If-Match with one strong etag.
func unquote(match string) (string, bool) {
	etag, ok := strings.CutPrefix(match, `"`)
	etag, ended := strings.CutSuffix(etag, `"`)
	return etag, ok && ended && etag != "" && !strings.Contains(etag, `"`)
}

// withETag adds the group's etag to an answer with one group.
func withETag(r *reply, err error) (*reply, error) {
	if err == nil && r.Status == http.StatusOK {
		if all, ok := r.Body.([]admin.Group); ok && len(all) == 1 && all[0].GetEtag() != "" {
			r.ETag = `"` + all[0].GetEtag() + `"`
		}
	}
	return r, err
}

// confirmed returns the problem that names the machines that go, unless that is confirmed or
// none do.
func (a *API) confirmed(ctx context.Context, yes bool, shards []client.Shard, group string, onDemand bool) error {
	if yes {
		return nil
	}
	ids, err := a.cfg.Service.Counted(ctx, shards, group, onDemand)
	if err != nil {
		return problemOf(failures(err, false))
	}
	if lines := admin.RemovalLines(ids); len(lines) > 0 {
		return problem(http.StatusConflict, "this removes machines: "+strings.Join(lines, "; ")+"; nothing was changed; add yes=true")
	}
	return nil
}

func (a *API) deleteGroup(ctx context.Context, in *DeleteInput) (*reply, error) {
	shards, err := in.write(a.cfg.Shards)
	if err != nil {
		return nil, err
	}
	if err := a.confirmed(ctx, in.Yes, shards, in.Group, true); err != nil {
		return nil, err
	}
	deleting, err := a.cfg.Service.DeleteGroup(ctx, shards, in.Group, in.Force)
	body := deleted{Key: in.Group, DeletingIn: deleting}
	r, err := gathered(shards, []deleted{body}, err, false)
	if err == nil && r.Status == http.StatusOK {
		r = &reply{Status: http.StatusAccepted, Body: body}
	}
	return r, err
}
