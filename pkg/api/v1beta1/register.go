package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of all kinds.
const Group = "infrastructure.cluster.x-k8s.io"

// GroupVersion returns the group and version of all kinds.
func GroupVersion() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: "v1beta1"} }

// AddToScheme registers all kinds.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&NstanceCluster{}, &NstanceClusterList{},
		&NstanceControlPlane{}, &NstanceControlPlaneList{},
		&NstanceMachinePool{}, &NstanceMachinePoolList{},
		&NstanceShardGroup{}, &NstanceShardGroupList{},
		&NstanceMachine{}, &NstanceMachineList{},
		&NstanceMachineTemplate{}, &NstanceMachineTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}

// MachineKind is the kind of NstanceMachines.
func MachineKind() schema.GroupKind { return schema.GroupKind{Group: Group, Kind: "NstanceMachine"} }
