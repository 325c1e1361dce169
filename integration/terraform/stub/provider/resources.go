package provider

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/hashicorp/terraform-plugin-go/tfprotov5"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/nstance/nstance/integration/terraform/stub/catalog"
)

// ValidateResourceTypeConfig does nothing: Terraform validates against the schema.
func (s *Server) ValidateResourceTypeConfig(
	context.Context, *tfprotov5.ValidateResourceTypeConfigRequest,
) (*tfprotov5.ValidateResourceTypeConfigResponse, error) {
	return &tfprotov5.ValidateResourceTypeConfigResponse{}, nil
}

// UpgradeResourceState returns the state unchanged; there has been one version only.
func (s *Server) UpgradeResourceState(
	_ context.Context, req *tfprotov5.UpgradeResourceStateRequest,
) (*tfprotov5.UpgradeResourceStateResponse, error) {
	typ := s.types.Resources[req.TypeName].Type()
	value, err := ctyjson.Unmarshal(req.RawState.JSON, typ)
	out := &tfprotov5.UpgradeResourceStateResponse{}
	if err == nil {
		out.UpgradedState, err = encode(value, typ)
	}
	if err != nil {
		out.Diagnostics = failed(fmt.Errorf("read the state of %s: %w", req.TypeName, err))
	}
	return out, nil
}

// ReadResource returns the state unchanged.
func (s *Server) ReadResource(_ context.Context, req *tfprotov5.ReadResourceRequest) (*tfprotov5.ReadResourceResponse, error) {
	return &tfprotov5.ReadResourceResponse{NewState: req.CurrentState, Private: req.Private}, nil
}

// PlanResourceChange marks values as unknown that only AWS can set.
func (s *Server) PlanResourceChange(
	_ context.Context, req *tfprotov5.PlanResourceChangeRequest,
) (*tfprotov5.PlanResourceChangeResponse, error) {
	kind := s.types.Resources[req.TypeName]
	out := &tfprotov5.PlanResourceChangeResponse{PlannedPrivate: req.PriorPrivate}
	prior, err1 := decode(req.PriorState, kind.Type())
	proposed, err2 := decode(req.ProposedNewState, kind.Type())
	config, err3 := decode(req.Config, kind.Type())
	if err := errors.Join(err1, err2, err3); err != nil {
		out.Diagnostics = failed(err)
		return out, nil
	}
	planned, err := s.plan(kind, prior, proposed, config)
	if err == nil {
		out.RequiresReplace = replaced(kind, prior, planned)
		out.PlannedState, err = encode(planned, kind.Type())
	}
	if err != nil {
		out.Diagnostics = failed(fmt.Errorf("plan %s: %w", req.TypeName, err))
	}
	return out, nil
}

func (s *Server) plan(kind catalog.Kind, prior, proposed, config cty.Value) (cty.Value, error) {
	if proposed.IsNull() {
		return proposed, nil
	}
	proposed, err := withoutWriteOnly(kind.Block, proposed)
	if err != nil || !prior.IsNull() && proposed.RawEquals(prior) {
		return proposed, err
	}
	return s.unknowns(kind, proposed, config, prior.IsNull()), nil
}

// replaced returns the changes that are not possible in place.
func replaced(kind catalog.Kind, prior, planned cty.Value) []*tftypes.AttributePath {
	if prior.IsNull() || planned.IsNull() {
		return nil
	}
	var out []*tftypes.AttributePath
	for _, name := range kind.ForceNew {
		if !planned.GetAttr(name).RawEquals(prior.GetAttr(name)) {
			out = append(out, tftypes.NewAttributePath().WithAttributeName(name))
		}
	}
	for _, name := range kind.Grows {
		if shrinks(prior.GetAttr(name), planned.GetAttr(name)) {
			out = append(out, tftypes.NewAttributePath().WithAttributeName(name))
		}
	}
	return out
}

// shrinks reports whether a known set loses an element. An unknown set loses none.
func shrinks(prior, planned cty.Value) bool {
	if prior.IsNull() || planned.IsNull() || !planned.IsWhollyKnown() {
		return false
	}
	for _, one := range elements(prior) {
		if planned.HasElement(one).False() {
			return true
		}
	}
	return false
}

// ApplyResourceChange creates, changes or removes a resource.
func (s *Server) ApplyResourceChange(
	_ context.Context, req *tfprotov5.ApplyResourceChangeRequest,
) (*tfprotov5.ApplyResourceChangeResponse, error) {
	kind := s.types.Resources[req.TypeName]
	out := &tfprotov5.ApplyResourceChangeResponse{}
	planned, err1 := decode(req.PlannedState, kind.Type())
	config, err2 := decode(req.Config, kind.Type())
	revision, err3 := next(req.PlannedPrivate)
	err := errors.Join(err1, err2, err3)
	if err == nil && !planned.IsNull() {
		out.Private = []byte(strconv.Itoa(revision))
		planned, err = s.settle(req.TypeName, kind, planned, config, revision)
	}
	if err == nil {
		out.NewState, err = encode(planned, kind.Type())
	}
	if err != nil {
		out.Diagnostics = failed(fmt.Errorf("apply %s: %w", req.TypeName, err))
	}
	return out, nil
}

// next counts how often a resource was applied, in the private data that Terraform stores for the
// provider.
func next(private []byte) (int, error) {
	if len(private) == 0 {
		return 1, nil
	}
	before, err := strconv.Atoi(string(private))
	return before + 1, err
}
