package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/nstance/nstance/pkg/admin"
	"github.com/nstance/nstance/pkg/client"
	"github.com/nstance/nstance/pkg/fleet"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

type listInput struct {
	Target
	Group   string `query:"group" doc:"Only this group"`
	Deleted bool   `query:"deleted" doc:"Tombstones too"`
}

type instanceInput struct {
	Target
	ID string `path:"id" doc:"The instance's ID"`
}

type createInput struct {
	Target
	Body struct {
		Group        string         `json:"group" minLength:"1" doc:"The group whose template is used"`
		Key          string         `json:"key" minLength:"1" doc:"Idempotency key: a repeated key names the same instance"`
		InstanceType *string        `json:"instance_type,omitempty" doc:"Instead of the group's"`
		Vars         map[string]any `json:"vars,omitempty" doc:"Vars that override the group's"`
		Namespace    string         `json:"namespace,omitempty" doc:"The Kubernetes Namespace of the pod that the instance is for"`
	}
}

// taken is the answer to a request for an instance.
type taken struct {
	ID    string `json:"id"`
	Shard string `json:"shard" doc:"The shard that has it"`
}

func (a *API) instances() {
	huma.Register(a.huma, a.operation(operation{
		id: "instance-list", method: http.MethodGet, path: "/instances", summary: "List instances",
		answers: types{200: []admin.Instance{}, 207: Partial[admin.Instance]{}},
	}), func(ctx context.Context, in *listInput) (*reply, error) {
		shards, err := in.read(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		all, err := a.cfg.Service.ListInstances(ctx, shards, in.Group, in.Deleted)
		return gathered(shards, all, err, false)
	})
	huma.Register(a.huma, a.operation(operation{
		id: "instance-create", method: http.MethodPost, path: "/instances", summary: "Create an on-demand instance", body: true,
		description: "It is made from a group's template, and does not count towards the group's size.",
		answers:     types{201: admin.Instance{}},
	}), a.createInstance)
	huma.Register(a.huma, a.operation(operation{
		id: "instance-status", method: http.MethodGet, path: "/instances/{id}", summary: "Show an instance",
		answers: types{200: admin.Instance{}},
	}), func(ctx context.Context, in *instanceInput) (*reply, error) {
		shards, err := in.instance(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		i, err := a.cfg.Service.InstanceStatus(ctx, shards, in.ID)
		if err != nil {
			return nil, firstProblem(err)
		}
		return &reply{Status: http.StatusOK, Body: i}, nil
	})
	gone := "An on-demand instance drains and is deleted. A managed one is replaced: the new instance comes up first, then the old one " +
		"drains. "
	a.toInstance(operation{
		id: "instance-delete", method: http.MethodDelete, path: "/instances/{id}", summary: "Delete or replace an instance",
		description: gone + "A scale with remove shrinks the group by exactly this instance.",
	}, a.cfg.Service.DeleteInstance)
	a.toInstance(operation{
		id: "instance-drain", method: http.MethodPost, path: "/instances/{id}/drain", summary: "Drain an instance",
		description: gone + "Every drain ends with the deletion of the machine, so this is the same as a delete.",
	}, a.cfg.Service.DeleteInstance)
	a.toInstance(operation{
		id: "instance-ack", method: http.MethodPost, path: "/instances/{id}/ack", summary: "Acknowledge that a draining instance is empty",
		description: "It is deleted at once.",
	}, a.cfg.Service.AcknowledgeDrained)
}

// instance checks the ID, and returns the shards to ask for it.
func (in *instanceInput) instance(all []client.Shard) ([]client.Shard, error) {
	if _, err := fleet.ParseID(in.ID); err != nil {
		return nil, invalidField("id", err.Error())
	}
	return in.read(all)
}

// toInstance adds an operation that calls do for the instance, in whichever shard has it.
func (a *API) toInstance(o operation, do func(context.Context, []client.Shard, string) (string, error)) {
	o.answers = types{202: taken{}}
	huma.Register(a.huma, a.operation(o), func(ctx context.Context, in *instanceInput) (*reply, error) {
		shards, err := in.instance(a.cfg.Shards)
		if err != nil {
			return nil, err
		}
		shard, err := do(ctx, shards, in.ID)
		if err != nil {
			return nil, firstProblem(err)
		}
		return &reply{Status: http.StatusAccepted, Body: taken{ID: in.ID, Shard: shard}}, nil
	})
}

func (a *API) createInstance(ctx context.Context, in *createInput) (*reply, error) {
	shard, err := in.one(a.cfg.Shards, "all_shards", "an instance is created in one shard")
	if err != nil {
		return nil, err
	}
	req := &nstancev1.CreateInstanceRequest{
		Group: in.Body.Group, IdempotencyKey: in.Body.Key, InstanceType: in.Body.InstanceType, Namespace: in.Body.Namespace,
	}
	if in.Body.Vars != nil {
		if req.Vars, err = structpb.NewStruct(in.Body.Vars); err != nil {
			return nil, invalidField("body.vars", err.Error())
		}
	}
	i, err := a.cfg.Service.CreateInstance(ctx, shard, req)
	if err != nil {
		return nil, problemOf(failures(err, false))
	}
	return &reply{Status: http.StatusCreated, Body: i}, nil
}
