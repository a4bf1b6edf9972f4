// Grafana's types of a dashboard as JSON spells them. The test appends constants of these types, made of the
// dashboard, and compiles: a misspelt key, a wrong type or a word that is none of an enumeration is an error.
import type { Dashboard } from '@grafana/schema';
import type { Options as StatOptions } from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type { Options as TableOptions } from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type {
  FieldConfig,
  Options as TimeseriesOptions,
} from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

// An enumeration's member is its text in JSON.
type Json<T> = T extends string
  ? `${T}`
  : T extends (infer E)[]
    ? Json<E>[]
    : T extends object
      ? { [K in keyof T]: Json<T[K]> }
      : T;

type Checked = Json<Dashboard>;
type CheckedOptions = {
  stat: Partial<Json<StatOptions>>;
  table: Partial<Json<TableOptions>>;
  timeseries: Json<TimeseriesOptions>;
};
type CheckedCustom = Json<FieldConfig>;
// The schema leaves targets to the data source; this is what Prometheus reads.
type CheckedTarget = {
  refId: string;
  datasource: { type: 'prometheus'; uid: '${datasource}' };
  expr: string;
  legendFormat: string;
  range: boolean;
  instant: boolean;
  exemplar?: boolean;
  format?: 'time_series' | 'table' | 'heatmap';
};
