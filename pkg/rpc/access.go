package rpc

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// Who is the set of callers that may call a method.
type Who string

// The zero value is Nobody, so that a forgotten row admits no caller.
const (
	// Nobody is for methods that are part of a service but not offered here. The answer is
	// UNIMPLEMENTED.
	Nobody Who = ""
	// Anyone is every caller that passed the listener's TLS handshake, with or, where the
	// listener requires none, without a certificate.
	Anyone   Who = "anyone"
	Agent    Who = "agent"
	Operator Who = "operator"
)

// Rule is one row of the access table.
type Rule struct {
	Who        Who
	LeaderOnly bool // a server that is not the leader answers NOT_LEADER
}

// Table maps full method names to the callers allowed. A method without a row can't be served.
type Table map[string]Rule

// Access returns the table of all methods that servers offer.
func Access() Table {
	return Table{
		nstancev1.RegistrationService_RegisterAgent_FullMethodName:    {Anyone, true},
		nstancev1.RegistrationService_RegisterOperator_FullMethodName: {Anyone, true},

		nstancev1.AgentService_KeyGenRequests_FullMethodName:   {Agent, true},
		nstancev1.AgentService_SubmitPublicKeys_FullMethodName: {Agent, true},
		nstancev1.AgentService_ReceiveFiles_FullMethodName:     {Agent, true},
		nstancev1.AgentService_ReportHealth_FullMethodName:     {Agent, true},
		nstancev1.AgentService_RenewCertificate_FullMethodName: {Agent, true},

		nstancev1.OperatorService_RenewCertificate_FullMethodName:   {Operator, true},
		nstancev1.OperatorService_GetShardStatus_FullMethodName:     {Operator, true},
		nstancev1.OperatorService_GetConfigStatus_FullMethodName:    {Operator, true},
		nstancev1.OperatorService_RefreshConfig_FullMethodName:      {Operator, true},
		nstancev1.OperatorService_PreviewConfig_FullMethodName:      {Operator, true},
		nstancev1.OperatorService_ListGroups_FullMethodName:         {Operator, true},
		nstancev1.OperatorService_GetGroup_FullMethodName:           {Operator, true},
		nstancev1.OperatorService_UpsertGroup_FullMethodName:        {Operator, true},
		nstancev1.OperatorService_DeleteGroup_FullMethodName:        {Operator, true},
		nstancev1.OperatorService_ResetGroup_FullMethodName:         {Operator, true},
		nstancev1.OperatorService_AbortRollout_FullMethodName:       {Operator, true},
		nstancev1.OperatorService_RetryRollout_FullMethodName:       {Operator, true},
		nstancev1.OperatorService_ListInstances_FullMethodName:      {Operator, true},
		nstancev1.OperatorService_CreateInstance_FullMethodName:     {Operator, true},
		nstancev1.OperatorService_DeleteInstance_FullMethodName:     {Operator, true},
		nstancev1.OperatorService_GetInstanceStatus_FullMethodName:  {Operator, true},
		nstancev1.OperatorService_AcknowledgeDrained_FullMethodName: {Operator, true},
		nstancev1.OperatorService_WatchGroups_FullMethodName:        {Operator, true},
		nstancev1.OperatorService_WatchInstances_FullMethodName:     {Operator, true},
		nstancev1.OperatorService_WatchErrors_FullMethodName:        {Operator, true},
		nstancev1.OperatorService_ListEvents_FullMethodName:         {Operator, true},
		nstancev1.OperatorService_WatchEvents_FullMethodName:        {Operator, true},
		nstancev1.OperatorService_ListOperators_FullMethodName:      {Operator, true},
		nstancev1.OperatorService_RemoveOperator_FullMethodName:     {Operator, true},

		healthv1.Health_Check_FullMethodName: {Anyone, false},
		healthv1.Health_List_FullMethodName:  {Nobody, false},
		healthv1.Health_Watch_FullMethodName: {Nobody, false}, // every caller could hold it open

		// Debugging aid, registered only with ServerConfig.Debug.
		reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      {Anyone, false},
		reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: {Anyone, false},
	}
}

// check returns an error for registered methods that have no row and, without a gate, for
// leader-only methods.
func (t Table) check(services map[string]grpc.ServiceInfo, gate Gate) error {
	var missing []string
	var led bool
	for service, info := range services {
		for _, method := range info.Methods {
			name := "/" + service + "/" + method.Name
			rule, ok := t[name]
			if !ok {
				missing = append(missing, name)
			}
			led = led || rule.LeaderOnly
		}
	}
	switch {
	case len(missing) > 0:
		slices.Sort(missing)
		return fmt.Errorf("methods without a row in the access table: %v", missing)
	case led && gate == nil:
		return errors.New("leader-only methods need a gate")
	}
	return nil
}
